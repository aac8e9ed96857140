// kvikk search build and add: vectors from a file into an index.

#include <chrono>
#include <ctime>
#include <filesystem>
#include <optional>

#include "progress.h"
#include "search/fit.h"
#include "search/vector_lists.h"
#include "search_source.h"
#include "search_text.h"
#include "text/json_text.h"
#include "text/numbers.h"
#include "verbs.h"

namespace kvikk {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// Rows that are read and added at a time: a chunk of the index.
constexpr size_t kAddRows = 4096;

struct BuildOptions {
  std::string out;
  int32_t bits = 4;
  std::string metric = "ip";
  bool fit = false;
  int32_t lists = 0;
  std::string keep = "none";
  bool json = false;

  template <class V>
  void visit(V&& v) {
    v(out, "out", 1, kPathBytesMax, "the index to write; what is there is replaced");
    v(bits, "bits", 1, 8, "bits a dimension: 1, 2, 3, 4 or 8");
    v(metric, "metric", 1, 8, "ip (inner product), cos (cosine) or l2 (squared distance)");
    v(fit, "fit", false, true, "fit the codes to a sample: better at the same size");
    v(lists, "lists", 0, static_cast<int>(kIndexListsMax),
      "share the vectors out over N lists; a query looks into some; 0 = off");
    v(keep, "keep", 1, 8, "also keep the vectors, for --rerank: none, int8 or f16");
    v(json, "json", false, true, "print figures as JSON");
  }
};

struct AddOptions {
  std::string index;
  std::string remove;
  bool compact = false;
  bool json = false;

  template <class V>
  void visit(V&& v) {
    v(index, "index", 1, kPathBytesMax, "the index to change");
    v(remove, "remove", 1, kPathBytesMax, ".npy of int64: ids to take out first");
    v(compact, "compact", false, true, "give back the room of what was taken out");
    v(json, "json", false, true, "print figures as JSON");
  }
};

Result<IndexOptions> index_options(const BuildOptions& options) {
  IndexOptions out;
  out.bits = options.bits;
  if (options.metric == "ip") {
    out.metric = Metric::kInnerProduct;
  } else if (options.metric == "cos") {
    out.metric = Metric::kCosine;
  } else if (options.metric == "l2") {
    out.metric = Metric::kL2;
  } else {
    return invalid_argument("--metric is '" + short_text(options.metric) +
                            "'; it must be ip, cos or l2");
  }
  if (options.keep == "f16") {
    out.kept = KeptVectors::kHalf;
  } else if (options.keep == "int8") {
    out.kept = KeptVectors::kInt8;
  } else if (options.keep != "none") {
    return invalid_argument("--keep is '" + short_text(options.keep) +
                            "'; it must be none, int8 or f16");
  }
  return out;
}

// Lists and codes that fit a uniform sample of what will be added.
Status prepare(VectorIndex& index, const VectorSource& source, size_t lists, bool fit) {
  const size_t d = source.dimensions();
  const size_t wanted = lists > 0 ? list_sample_rows(lists, d) : kFitVectorsMax;
  std::vector<float> sample;
  for (const size_t row : sample_rows(source.rows(), wanted)) {
    sample.resize(sample.size() + d);
    TRY(source.read(row, 1, sample.data() + sample.size() - d));
  }
  if (lists > 0) TRY(index.make_lists(sample, lists));
  return fit ? index.fit(sample) : ok_status();
}

Status add_all(Shell& shell, VectorIndex& index, const VectorSource& source) {
  const size_t d = source.dimensions();
  Progress progress(shell, "adding", false);
  std::vector<float> vectors(std::min(source.rows(), kAddRows) * d);
  for (size_t first = 0; first < source.rows(); first += kAddRows) {
    TRY(shell.go_on());
    const size_t count = std::min(kAddRows, source.rows() - first);
    TRY(source.read(first, count, vectors.data()));
    const Status added = index.add({vectors.data(), count * d}, source.ids(first, count),
                                   source.attributes(first, count));
    if (!added.ok()) {
      return Status(added.code(), "rows " + std::to_string(first) + " to " +
                                      std::to_string(first + count - 1) + ", counted from " +
                                      std::to_string(first) + ": " + added.message());
    }
    progress.show(first + count, source.rows());
  }
  return ok_status();
}

struct Seconds {
  double wall;
  double processor;  // of all threads
};

// Since it was made.
class Stopwatch {
 public:
  Seconds read() const {
    return {std::chrono::duration<double>(Clock::now() - start_).count(),
            static_cast<double>(std::clock() - processor_) / CLOCKS_PER_SEC};
  }

 private:
  Clock::time_point start_ = Clock::now();
  std::clock_t processor_ = std::clock();
};

Status report(Shell& shell, const VectorIndex& index, const std::string& path, Seconds seconds,
              bool json) {
  const IndexInfo info = index.info();
  if (json) {
    return shell.print(json_line(Json{{"index", path},
                                      {"vectors", info.vectors},
                                      {"dimensions", info.options.dimensions},
                                      {"fitted", info.fitted},
                                      {"lists", info.lists},
                                      {"code_bytes_per_vector", info.code_bytes},
                                      {"bytes_per_vector", info.bytes_per_vector},
                                      {"kept_bytes_per_vector", info.kept_bytes},
                                      {"build_seconds", seconds.wall},
                                      {"build_processor_seconds", seconds.processor}}));
  }
  return shell.print(path + ": " + count_text(info.vectors) + " vectors of " +
                     std::to_string(info.options.dimensions) + " dimensions, " +
                     number_text(info.code_bytes) + " bytes of codes each, in " +
                     seconds_text(seconds.wall) + "\n");
}

}  // namespace

Status verb_search_build(Shell& shell, Arguments arguments) {
  SourceOptions source_options;
  TextIndexOptions text_options;
  BuildOptions options;
  SearchRuntimeOptions runtime;
  Command command(
      {"search build",
       "",
       "Makes an index of vectors, or of the texts of a folder: a few bits a dimension, searched "
       "as\nthey are.",
       {"kvikk search build --text docs/ --out docs.kvx",
        "kvikk search build --vectors base.npy --out base.kvx --bits 2 --fit --keep f16 "
        "--lists 256"}});
  command.add(source_options);
  command.add(text_options, {"text", "model"});
  command.add_short("model", 'm');
  command.add(options);
  command.add_short("out", 'o');
  command.add(runtime);
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();
  const bool of_text = command.given("text");
  if (of_text && command.given("vectors")) {
    return invalid_argument("give --vectors FILE or --text FOLDER, not both");
  }
  if (!of_text && !command.given("vectors")) {
    return invalid_argument("--vectors is missing, or --text");
  }
  TRY(require(command, {"out"}));
  TRY_ASSIGN(IndexOptions made, index_options(options));
  std::optional<AtomicFile> passages;
  if (of_text) {
    TRY_ASSIGN(AtomicFile file, AtomicFile::create(passages_path(options.out)));
    passages.emplace(std::move(file));
  }
  TRY_ASSIGN(const VectorSource source,
             of_text ? embed_texts(shell, text_options, runtime, options.out, *passages)
                     : VectorSource::open(shell, source_options));
  if (is_same_file(options.out, source_options.vectors)) {
    return invalid_argument("--out is the file of vectors, which it would replace");
  }
  const Stopwatch watch;
  made.dimensions = source.dimensions();
  made.attributes = source.attribute_count();
  TRY_ASSIGN(const std::unique_ptr<VectorIndex> index,
             VectorIndex::create(made, runtime.runtime()));
  const auto lists = static_cast<size_t>(options.lists);
  if (options.fit || lists > 0) TRY(prepare(*index, source, lists, options.fit));
  TRY(add_all(shell, *index, source));
  const Seconds seconds = watch.read();
  TRY(index->save(options.out));
  if (passages.has_value()) {
    TRY(passages->commit());
  } else {  // of texts that were there before
    std::error_code ignored;
    std::filesystem::remove(passages_path(options.out), ignored);
  }
  return report(shell, *index, options.out, seconds, options.json);
}

Status verb_search_add(Shell& shell, Arguments arguments) {
  SourceOptions source_options;
  AddOptions options;
  SearchRuntimeOptions runtime;
  Command command(
      {"search add",
       "",
       "Adds vectors to an index, replaces those whose ids are there, takes others out. "
       "A crash\nat any moment leaves the index as it was or as it should be.",
       {"kvikk search add --index base.kvx --vectors more.npy --ids more-ids.npy",
        "kvikk search add --index base.kvx --remove old-ids.npy"}});
  command.add(source_options);
  command.add(options);
  command.add(runtime);
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();
  TRY(require(command, {"index"}));
  if (std::error_code ignored; std::filesystem::exists(passages_path(options.index), ignored)) {
    return invalid_argument(options.index + ": is an index of texts, whose passages are in " +
                            passages_path(options.index) +
                            "; texts that changed are indexed by building again");
  }
  const Stopwatch watch;
  TRY_ASSIGN(const std::unique_ptr<VectorIndex> index,
             VectorIndex::open(options.index, runtime.runtime()));
  if (command.given("remove")) {
    TRY_ASSIGN(const size_t rows, integer_rows(options.remove));
    TRY_ASSIGN(const std::vector<int64_t> ids, read_integers(options.remove, rows, 1));
    TRY_ASSIGN(const size_t removed, index->remove(ids));
    shell.note(count_text(removed) + " of " + count_text(ids.size()) + " were there");
  }
  if (command.given("vectors")) {
    TRY_ASSIGN(const VectorSource source, VectorSource::open(shell, source_options));
    if (!source.has_ids()) {
      return invalid_argument("vectors to add need --ids: row numbers are taken already");
    }
    const size_t d = index->info().options.dimensions;
    if (source.dimensions() != d) {
      return invalid_argument(source_options.vectors + ": its vectors have " +
                              std::to_string(source.dimensions()) +
                              " dimensions, those of the index " + std::to_string(d));
    }
    TRY(add_all(shell, *index, source));
  }
  if (options.compact) TRY(index->compact());
  TRY(index->save(options.index));
  return report(shell, *index, options.index, watch.read(), options.json);
}

}  // namespace kvikk
