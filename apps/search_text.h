#pragma once
// Search in texts: a folder becomes passages and their vectors; a question finds passages. Beside
// the index lies a file of JSON lines: how the vectors were made, then each passage with its place,
// in order of the ids.

#include <string>

#include "base/files.h"
#include "model_source.h"
#include "search_options.h"
#include "search_source.h"

namespace kvikk {

struct TextIndexOptions {
  std::string text;
  int32_t passage_tokens = 160;
  ModelOptions model;

  TextIndexOptions() { model.model = kDefaultEmbedder; }
  template <class V>
  void visit(V&& v) {
    v(text, "text", 1, kPathBytesMax,
      "a folder of texts, or one text, to index instead of vectors");
    v(passage_tokens, "passage_tokens", 16, 4096, "of a text: tokens of a passage at most");
    model.visit(v);
  }
};

struct TextQueryOptions {
  ModelsDirOptions dir;

  template <class V>
  void visit(V&& v) {
    dir.visit(v);
  }
};

// Where the passages of an index are.
inline std::string passages_path(const std::string& index) { return index + ".passages"; }

// Writes the passages to `passages`, and returns their vectors. `index` and what lies beside it are
// no texts. Errors: kInvalidArgument: `index` is one of the texts, which it would replace.
Result<VectorSource> embed_texts(Shell& shell, const TextIndexOptions& options,
                                 const SearchRuntimeOptions& runtime, const std::string& index,
                                 AtomicFile& passages);

struct TextQuery {
  std::string index;
  std::string text;
  SearchOptions search;
  bool json = false;
};
// Prints the passages that are nearest, best first.
Status query_text(Shell& shell, const TextQuery& query, const TextQueryOptions& options,
                  const SearchRuntimeOptions& runtime);

}  // namespace kvikk
