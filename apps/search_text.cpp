#include "search_text.h"

#include <xxhash.h>

#include <filesystem>
#include <map>
#include <set>

#include "passages.h"
#include "progress.h"
#include "text/json_text.h"
#include "text/numbers.h"

namespace kvikk {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kTextFileBytesMax = size_t{64} << 20;
constexpr size_t kPassagesMax = size_t{1} << 24;
constexpr size_t kGroupPassages = 64;  // computed before Ctrl-C and progress are looked at
constexpr int kPassagesVersion = 2;

Result<std::unique_ptr<Embedder>> open_embedder(Shell& shell, const ModelOptions& model,
                                                const SearchRuntimeOptions& runtime) {
  EmbedderOptions options;
  options.threads = runtime.threads;
  options.cpu_level = runtime.cpu_level;
  options.cache_dir = model.dir.directory();
  TRY_ASSIGN(const std::string path, find_model(shell, model));
  return load_embedder(shell, path, options);
}

Result<std::vector<Passage>> read_passages(Shell& shell, const std::string& root,
                                           const std::string& index, size_t tokens_max,
                                           const Embedder& embedder) {
  TRY_ASSIGN(const std::vector<std::string> files, list_text_files(root));
  std::vector<Passage> passages;
  size_t others = 0;
  for (const std::string& file : files) {
    TRY(shell.go_on());
    if (is_same_file(file, passages_path(index))) continue;  // of the build before
    const Result<std::string> content = read_file(file, kTextFileBytesMax);
    if (!content.ok() && content.status().code() != StatusCode::kExhausted) return content.status();
    const bool readable = content.ok() && is_text(*content);
    if (is_same_file(file, index)) {
      if (!readable) continue;
      return invalid_argument(file + ": is a text to index, which --out would replace");
    }
    if (!readable) {
      ++others;
      continue;
    }
    cut_text(
        *content, file, tokens_max,
        [&](std::string_view text) { return embedder.count_tokens(text); }, passages);
    if (passages.size() <= kPassagesMax) continue;
    return exhausted(root + ": has more than " + std::to_string(kPassagesMax) + " passages");
  }
  if (others > 0) {
    shell.note(count_text(others) + " of " + count_text(files.size()) +
               " files were left out: they are no text, or larger than " +
               bytes_text(kTextFileBytesMax));
  }
  if (passages.empty()) return invalid_argument(root + ": has no text");
  return passages;
}

std::string place_text(const Passage& passage) {
  const std::string first = passage.file + ":" + std::to_string(passage.first_line);
  if (passage.last_line == passage.first_line) return first;
  return first + "-" + std::to_string(passage.last_line);
}

Result<std::vector<float>> embed_passages(Shell& shell, const std::vector<Passage>& passages,
                                          Embedder& embedder) {
  const size_t d = embedder.dimensions();
  std::vector<float> vectors(passages.size() * d);
  Progress progress(shell, "embedding", false);
  for (size_t first = 0; first < passages.size(); first += kGroupPassages) {
    std::vector<std::vector<TokenId>> tokens;
    for (size_t i = first; i < std::min(first + kGroupPassages, passages.size()); ++i) {
      Result<std::vector<TokenId>> text = embedder.encode(passages[i].text);
      if (!text.ok()) {
        return Status(text.status().code(),
                      place_text(passages[i]) + ": " + text.status().message());
      }
      tokens.push_back(std::move(*text));
    }
    TRY(embedder.embed(tokens, vectors.data() + first * d,
                       [&] { return shell.interrupts().raised(); }));
    progress.show(first + tokens.size(), passages.size());
  }
  return vectors;
}

// A line of the file of passages, without its newline, is known in the index by a hash of it and of
// its number: so what is printed is what the vector was made of, or nothing.
int64_t passage_id(std::string_view line, size_t number) {
  return static_cast<int64_t>(XXH3_64bits_withSeed(line.data(), line.size(), number) >> 1);
}

struct PassagesHeader {
  std::string model;
  size_t passages = 0;
};

Result<PassagesHeader> read_header(LineReader& lines, const std::string& path) {
  std::string text;
  TRY_ASSIGN(const bool more, lines.next(text));
  if (!more) return damaged(path + ": is empty");
  TRY_ASSIGN(const Json json, parse_json_object(text, lines.where()));
  const auto version = json.find("kvikk_passages");
  if (version == json.end() || *version != kPassagesVersion) {
    return unsupported(path + ": is no file of passages of version " +
                       std::to_string(kPassagesVersion) + ": build it again");
  }
  const auto model = json.find("model");
  const auto count = json_unsigned(json, "passages");
  if (model == json.end() || !model->is_string() || !count) {
    return damaged(lines.where() + ": must have the texts' model and the number of passages");
  }
  return PassagesHeader{*model, *count};
}

Result<Passage> passage_of(const std::string& text, const std::string& where) {
  TRY_ASSIGN(const Json json, parse_json_object(text, where));
  const auto has_text = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_string();
  };
  const auto first = json_unsigned(json, "line");
  const auto last = json_unsigned(json, "last_line");
  if (!has_text("file") || !has_text("text") || !first || !last) {
    return damaged(where + ": a passage must have file, line, last_line and text");
  }
  return Passage{json["file"], *first, *last, json["text"]};
}

// The passages of the ids that were found. Errors: kDamaged: one is not there.
Result<std::map<int64_t, Passage>> find_passages(LineReader& lines, const std::string& path,
                                                 const std::vector<Neighbor>& found) {
  std::set<int64_t> missing;
  for (const Neighbor& neighbor : found) missing.insert(neighbor.id);
  std::map<int64_t, Passage> passages;
  std::string text;
  for (size_t number = 0; !missing.empty(); ++number) {
    TRY_ASSIGN(const bool more, lines.next(text));
    if (!more) return damaged(path + ": lacks passages of its index: build it again");
    const int64_t id = passage_id(text, number);
    if (missing.erase(id) == 0) continue;
    TRY_ASSIGN(passages[id], passage_of(text, lines.where()));
  }
  return passages;
}

// "0.612  docs/kv.md:12-20", then the passage, each line four spaces in.
std::string found_text(float score, const Passage& passage) {
  std::string text = fixed_text(static_cast<double>(score), 3) + "  " + place_text(passage) + "\n";
  std::string_view rest = passage.text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    text += (end == 0 ? "" : "    ") + std::string(rest.substr(0, end)) + "\n";
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return text + "\n";
}

}  // namespace

Result<VectorSource> embed_texts(Shell& shell, const TextIndexOptions& options,
                                 const SearchRuntimeOptions& runtime, const std::string& index,
                                 AtomicFile& file) {
  TRY_ASSIGN(const std::unique_ptr<Embedder> embedder,
             open_embedder(shell, options.model, runtime));
  // What the model puts around a text takes room too.
  TRY_ASSIGN(const std::vector<TokenId> around, embedder->encode("a"));
  const size_t room = embedder->context() - std::min(embedder->context() - 1, around.size());
  const size_t tokens_max = std::min(static_cast<size_t>(options.passage_tokens), room);
  TRY_ASSIGN(const std::vector<Passage> passages,
             read_passages(shell, options.text, index, tokens_max, *embedder));
  std::string model = options.model.model;
  std::error_code error;
  if (find_catalog_entry(model) == nullptr)
    model = std::filesystem::absolute(model, error).string();
  const auto write = [&](const Json& json) { return file.write(bytes_of(json_line(json))); };
  TRY(write(
      Json{{"kvikk_passages", kPassagesVersion}, {"model", model}, {"passages", passages.size()}}));
  std::vector<int64_t> ids;
  for (const Passage& passage : passages) {
    const std::string line = json_line(Json{{"file", passage.file},
                                            {"line", passage.first_line},
                                            {"last_line", passage.last_line},
                                            {"text", passage.text}});
    ids.push_back(passage_id(std::string_view(line).substr(0, line.size() - 1), ids.size()));
    TRY(file.write(bytes_of(line)));
  }
  TRY_ASSIGN(std::vector<float> vectors, embed_passages(shell, passages, *embedder));
  return VectorSource::of(std::move(vectors), embedder->dimensions(), std::move(ids));
}

Status query_text(Shell& shell, const TextQuery& query, const TextQueryOptions& options,
                  const SearchRuntimeOptions& runtime) {
  TRY_ASSIGN(const std::unique_ptr<VectorIndex> index,
             VectorIndex::open(query.index, runtime.runtime()));
  const std::string path = passages_path(query.index);
  Result<LineReader> opened = LineReader::open(shell, path);
  if (opened.status().code() == StatusCode::kNotFound) {
    return not_found(path + ": is not there: the index was not built with --text, or moved alone");
  }
  TRY_ASSIGN(LineReader lines, std::move(opened));
  TRY_ASSIGN(const PassagesHeader header, read_header(lines, path));
  if (header.passages != index->info().vectors) {
    return damaged(path + ": has " + std::to_string(header.passages) + " passages, the index " +
                   std::to_string(index->info().vectors) + " vectors: build it again");
  }
  ModelOptions model;
  model.model = header.model;
  model.dir = options.dir;
  TRY_ASSIGN(const std::unique_ptr<Embedder> embedder, open_embedder(shell, model, runtime));
  const size_t d = index->info().options.dimensions;
  if (embedder->dimensions() != d) {
    return damaged(header.model + ": makes vectors of " + std::to_string(embedder->dimensions()) +
                   " dimensions, those of the index have " + std::to_string(d));
  }
  TRY_ASSIGN(const std::vector<TokenId> tokens, embedder->encode(query.text));
  std::vector<float> vector(d);
  TRY(embedder->embed({&tokens, 1}, vector.data()));
  TRY_ASSIGN(const Neighbors found, index->search(vector, query.search));
  TRY_ASSIGN(auto passages, find_passages(lines, path, found[0]));
  for (const Neighbor& neighbor : found[0]) {
    const Passage& passage = passages[neighbor.id];
    TRY(query.json ? shell.print(json_line(Json{{"score", neighbor.score},
                                                {"file", passage.file},
                                                {"line", passage.first_line},
                                                {"last_line", passage.last_line},
                                                {"text", passage.text}}))
                   : shell.print_model_text(found_text(neighbor.score, passage)));
  }
  return ok_status();
}

}  // namespace kvikk
