// kvikk embed: one vector for each text.

#include <chrono>

#include "engine/embedder.h"
#include "model_source.h"
#include "progress.h"
#include "search/vector_file.h"
#include "text/json_text.h"
#include "text/numbers.h"
#include "verbs.h"

namespace kvikk {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kTextsMax = size_t{1} << 24;
constexpr size_t kWordsMax = 1024;   // texts as arguments
constexpr size_t kGroupTexts = 256;  // that are read before they are computed

struct OutputOptions {
  std::string in;
  std::string out;
  bool json = false;

  template <class V>
  void visit(V&& v) {
    v(in, "in", 1, 4096, "file with a text on each line; - is standard input");
    v(out, "out", 1, 4096, ".npy for the vectors, float32 [texts, dimensions]");
    v(json, "json", false, true, "JSON lines with the tokens of each text; with --out figures");
  }
};

// Texts from the command line or from lines, some at a time.
class TextSource {
 public:
  static Result<TextSource> open(Shell& shell, const std::vector<std::string>& words,
                                 const std::string& in) {
    TextSource source;
    source.words_ = words;
    if (words.empty()) {
      TRY_ASSIGN(LineReader lines, LineReader::open(shell, in));
      source.lines_ = std::make_unique<LineReader>(std::move(lines));
    }
    return source;
  }

  // False: there are no more. `where`: how a message names the text.
  Result<bool> next(std::string& text, std::string& where) {
    if (lines_ == nullptr) {
      if (read_ == words_.size()) return false;
      text = words_[read_++];
      where = "text " + std::to_string(read_);
      return true;
    }
    TRY_ASSIGN(const bool more, lines_->next(text));
    if (!more) return false;
    if (!text.empty() && text.back() == '\r') text.pop_back();
    where = lines_->where();
    if (++read_ <= kTextsMax) return true;
    return exhausted(where + ": at most " + std::to_string(kTextsMax) + " texts at a time");
  }

 private:
  std::vector<std::string> words_;
  std::unique_ptr<LineReader> lines_;
  size_t read_ = 0;
};

// Numbers of float32 with the digits that they have, not those of their doubles.
Json numbers_json(std::span<const float> vector) {
  Json numbers = Json::array();
  for (const float x : vector) numbers.push_back(*parse_number<double>(number_text(x)));
  return numbers;
}

std::string numbers_line(std::span<const float> vector) {
  std::string line;
  for (const float x : vector) line += (line.empty() ? "" : " ") + number_text(x);
  return line + "\n";
}

// Where vectors go.
class VectorSink {
 public:
  VectorSink(Shell& shell, const OutputOptions& options) : shell_(shell), options_(options) {}

  Status take(std::span<const std::vector<TokenId>> texts, std::span<const float> vectors) {
    const size_t d = vectors.size() / texts.size();
    for (size_t i = 0; i < texts.size(); ++i, ++texts_) {
      tokens_ += texts[i].size();
      if (!options_.out.empty()) continue;
      const std::span<const float> vector = vectors.subspan(i * d, d);
      TRY(shell_.print(options_.json ? json_line(Json{{"index", texts_},
                                                      {"tokens", texts[i].size()},
                                                      {"embedding", numbers_json(vector)}})
                                     : numbers_line(vector)));
    }
    if (!options_.out.empty()) kept_.insert(kept_.end(), vectors.begin(), vectors.end());
    return ok_status();
  }

  Status write(OutputFile& file, size_t dimensions) const {
    TRY(file.write(npy_header("<f4", texts_, dimensions)));
    TRY(file.write({reinterpret_cast<const char*>(kept_.data()), kept_.size() * sizeof(float)}));
    return file.close();
  }

  size_t texts() const { return texts_; }
  size_t tokens() const { return tokens_; }

 private:
  Shell& shell_;
  const OutputOptions& options_;
  std::vector<float> kept_;  // [texts, dimensions], for a file
  size_t texts_ = 0;
  size_t tokens_ = 0;
};

Status embed_all(Shell& shell, Embedder& embedder, TextSource& source, VectorSink& sink) {
  std::string text;
  std::string where;
  for (bool more = true; more;) {
    std::vector<std::vector<TokenId>> group;
    while (group.size() < kGroupTexts) {
      TRY_ASSIGN(more, source.next(text, where));
      if (!more) break;
      Result<std::vector<TokenId>> tokens = embedder.encode(text);
      if (!tokens.ok()) {
        return Status(tokens.status().code(), where + ": " + tokens.status().message());
      }
      group.push_back(std::move(*tokens));
    }
    if (group.empty()) break;
    std::vector<float> vectors(group.size() * embedder.dimensions());
    TRY(embedder.embed(group, vectors.data(), [&] { return shell.interrupts().raised(); }));
    TRY(sink.take(group, vectors));
  }
  return ok_status();
}

}  // namespace

Status verb_embed(Shell& shell, Arguments arguments) {
  ModelOptions model;
  model.model = kDefaultEmbedder;
  OutputOptions output;
  EmbedderOptions options;
  std::vector<std::string> words;
  Command command(
      {"embed",
       "[TEXT...]",
       "Makes a vector of each TEXT, or of each line of a file or of standard input: "
       "texts that\nmean the like have vectors that point the same way. Prints numbers, "
       "a line a text.",
       {"kvikk embed \"a small cat\" \"a kitten\" --json",
        "kvikk embed --in lines.txt --out vectors.npy"}});
  command.add(model, {"model"});
  command.add_short("model", 'm');
  command.add(output);
  command.add(options);
  command.take_words(words, 0, kWordsMax);
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();
  if (!words.empty() && command.given("in")) {
    return invalid_argument("give texts or --in FILE, not both");
  }
  TRY(validate(options));
  TRY_ASSIGN(const std::string path, find_model(shell, model));
  const std::string in = output.in.empty() ? "-" : output.in;
  TRY_ASSIGN(TextSource source, TextSource::open(shell, words, in));
  std::optional<OutputFile> file;
  if (!output.out.empty()) {
    TRY_ASSIGN(OutputFile opened, OutputFile::open(output.out, {path, output.in}));
    file.emplace(std::move(opened));
  }
  options.cache_dir = model.dir.directory();
  TRY_ASSIGN(const std::unique_ptr<Embedder> embedder, load_embedder(shell, path, options));
  VectorSink sink(shell, output);
  const auto start = std::chrono::steady_clock::now();
  TRY(embed_all(shell, *embedder, source, sink));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!file.has_value()) return ok_status();
  TRY(sink.write(*file, embedder->dimensions()));
  if (!output.json) return ok_status();
  return shell.print(json_line(Json{{"texts", sink.texts()},
                                    {"dimensions", embedder->dimensions()},
                                    {"pooling", pooling_name(embedder->pooling())},
                                    {"normalised", !options.raw},
                                    {"tokens", sink.tokens()},
                                    {"seconds", seconds}}));
}

}  // namespace kvikk
