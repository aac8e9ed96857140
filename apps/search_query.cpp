// kvikk search query, info and bench: what an index holds, finds, and how fast.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <functional>
#include <optional>

#include "search/fit.h"
#include "search/vector_file.h"
#include "search_options.h"
#include "search_text.h"
#include "text/json_text.h"
#include "text/numbers.h"
#include "verbs.h"

namespace kvikk {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// Queries of one call: so many are computed before Ctrl-C is looked at.
constexpr size_t kQueriesAtATime = 256;
constexpr size_t kListQueriesAtATime = 1024;  // with lists: the more, the more meet in a list
constexpr size_t kRecallQueriesMax = 256;     // that --recall is tried with

struct FindOptions {
  std::string index;
  std::string queries;
  int32_t k = 10;
  int32_t rerank = 0;
  bool staged = false;
  int32_t candidates = 0;
  int32_t probes = 0;
  double recall = 0;

  template <class V>
  void visit(V&& v) {
    constexpr auto kMost = static_cast<int>(kNeighborsMax);
    v(index, "index", 1, kPathBytesMax, "the index");
    v(queries, "queries", 1, kPathBytesMax,
      ".npy of float32 or float16 [queries, dimensions], or .fvecs");
    v(k, "k", 1, kMost, "how many are found for each query");
    v(rerank, "rerank", 0, kMost, "score the best N again with the kept vectors; 0 = off");
    v(staged, "staged", false, true, "a first pass over the top two bits of each code");
    v(candidates, "candidates", 0, kMost, "of the first pass; 0 = 64, at least 6 k");
    v(probes, "probes", 0, static_cast<int>(kIndexListsMax),
      "lists that a query looks into; 0 = what the index was built with");
    v(recall, "recall", 0, 1,
      "so many lists that this part is found, tried with some of the queries");
  }
  SearchOptions search() const {
    SearchOptions out;
    out.k = static_cast<size_t>(k);
    out.rerank = static_cast<size_t>(rerank);
    out.staged = staged;
    out.candidates = static_cast<size_t>(candidates);
    out.probes = static_cast<size_t>(probes);
    return out;
  }
};

struct QueryOutput {
  std::string only;
  std::string out;
  std::string scores;
  bool json = false;

  template <class V>
  void visit(V&& v) {
    v(only, "only", 1, kPathBytesMax, ".npy of int64: nothing but these ids is found");
    v(out, "out", 1, kPathBytesMax, ".npy for int64 ids [queries, k], -1 where there are fewer");
    v(scores, "scores", 1, kPathBytesMax, ".npy for float32 scores [queries, k], NaN likewise");
    v(json, "json", false, true, "print figures as JSON");
  }
};

struct InfoOptions {
  std::string index;
  bool verify = false;
  bool json = false;

  template <class V>
  void visit(V&& v) {
    v(index, "index", 1, kPathBytesMax, "the index");
    v(verify, "verify", false, true, "compare every checksum");
    v(json, "json", false, true, "one JSON document");
  }
};

struct BenchOptions {
  int32_t repeat = 5;
  bool json = false;

  template <class V>
  void visit(V&& v) {
    v(repeat, "repeat", 1, 1000, "times that each measurement is made");
    v(json, "json", false, true, "one JSON document");
  }
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Result<VectorFile> open_queries(const FindOptions& options, const VectorIndex& index) {
  TRY_ASSIGN(VectorFile queries, VectorFile::open(options.queries));
  const size_t d = index.info().options.dimensions;
  if (queries.dimensions() == d) return queries;
  return invalid_argument(options.queries + ": its vectors have " +
                          std::to_string(queries.dimensions()) +
                          " dimensions, those of the index " + std::to_string(d));
}

template <class T>
std::string_view bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

Status print_found(Shell& shell, const Neighbors& found) {
  for (const std::vector<Neighbor>& neighbors : found) {
    Json line = {{"ids", Json::array()}, {"scores", Json::array()}};
    for (const Neighbor& n : neighbors) {
      line["ids"].push_back(n.id);
      line["scores"].push_back(n.score);
    }
    TRY(shell.print(json_line(line)));
  }
  return ok_status();
}

Status write_found(OutputFile& ids, OutputFile* scores, const Neighbors& found, size_t k) {
  std::vector<int64_t> id_rows;
  std::vector<float> score_rows;
  for (const std::vector<Neighbor>& neighbors : found) {
    for (size_t i = 0; i < k; ++i) {
      id_rows.push_back(i < neighbors.size() ? neighbors[i].id : -1);
      score_rows.push_back(i < neighbors.size() ? neighbors[i].score : NAN);
    }
  }
  TRY(ids.write(bytes_of(id_rows)));
  return scores == nullptr ? ok_status() : scores->write(bytes_of(score_rows));
}

// With --recall: as many probes as it takes, tried with some of the queries.
Status choose_probes(const FindOptions& options, const VectorIndex& index,
                     const VectorFile& queries, SearchOptions& search) {
  if (options.recall == 0) return ok_status();
  if (options.probes > 0) return invalid_argument("--recall chooses what --probes gives");
  const size_t d = queries.dimensions();
  std::vector<float> sample;
  for (const size_t row : sample_rows(queries.rows(), kRecallQueriesMax)) {
    sample.resize(sample.size() + d);
    TRY(queries.read(row, 1, sample.data() + sample.size() - d));
  }
  TRY_ASSIGN(search.probes, index.probes_for(sample, options.recall, search));
  return ok_status();
}

// Searches for all queries, a few at a time; `take` gets what was found. Returns the seconds that
// searching took.
Result<double> search_all(Shell& shell, const VectorIndex& index, const VectorFile& queries,
                          const SearchOptions& options,
                          const std::function<Status(const Neighbors&)>& take) {
  double seconds = 0;
  const size_t d = queries.dimensions();
  const size_t most = index.info().lists > 0 ? kListQueriesAtATime : kQueriesAtATime;
  std::vector<float> batch(std::min(queries.rows(), most) * d);
  for (size_t first = 0; first < queries.rows(); first += most) {
    TRY(shell.go_on());
    const size_t count = std::min(most, queries.rows() - first);
    TRY(queries.read(first, count, batch.data()));
    const auto start = Clock::now();
    const auto found = index.search({batch.data(), count * d}, options);
    seconds += seconds_since(start);
    if (!found.ok()) return found.status();
    TRY(take(*found));
  }
  return seconds;
}

const char* metric_name(Metric metric) {
  if (metric == Metric::kCosine) return "cos";
  return metric == Metric::kL2 ? "l2" : "ip";
}
const char* kept_name(KeptVectors kept) {
  if (kept == KeptVectors::kHalf) return "f16";
  return kept == KeptVectors::kInt8 ? "int8" : "none";
}

// 0 for an index without lists.
size_t probes_of(const SearchOptions& search, const IndexInfo& info) {
  return std::min(search.probes > 0 ? search.probes : info.probes, info.lists);
}

struct Taken {
  double seconds = INFINITY;
  double processor_seconds = INFINITY;  // of all threads; what else runs here counts less
};

// The fastest of some repetitions of f: the others were disturbed.
template <class F>
Result<Taken> fastest(Shell& shell, int repeat, F&& f) {
  Taken best;
  for (int i = 0; i < repeat; ++i) {
    TRY(shell.go_on());
    const auto start = Clock::now();
    const std::clock_t processor_start = std::clock();
    TRY(f());
    best.seconds = std::min(best.seconds, seconds_since(start));
    best.processor_seconds =
        std::min(best.processor_seconds,
                 static_cast<double>(std::clock() - processor_start) / CLOCKS_PER_SEC);
  }
  return best;
}

}  // namespace

Status verb_search_query(Shell& shell, Arguments arguments) {
  FindOptions options;
  QueryOutput output;
  SearchRuntimeOptions runtime;
  std::vector<std::string> words;
  TextQueryOptions text_options;
  Command command({"search query",
                   "[INDEX TEXT]",
                   "Finds the nearest vectors; in an index of texts the passages that are nearest "
                   "to TEXT.\nWithout --out each query is a line of JSON on standard output.",
                   {"kvikk search query docs.kvx \"how is a cache kept?\"",
                    "kvikk search query --index base.kvx --queries q.npy --out ids.npy --scores "
                    "s.npy --rerank 50"}});
  command.add(options);
  command.add(output);
  command.add(text_options);
  command.add(runtime);
  command.take_words(words, 0, 2);
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();
  if (!words.empty()) {
    if (words.size() != 2) return invalid_argument("give INDEX and \"TEXT\"");
    for (const char* other : {"index", "queries", "only", "out", "scores", "recall"}) {
      if (!command.given(other)) continue;
      return invalid_argument("--" + std::string(other) + " does not go with INDEX and TEXT");
    }
    return query_text(shell, {words[0], words[1], options.search(), output.json}, text_options,
                      runtime);
  }
  TRY(require(command, {"index", "queries"}));
  if (output.out.empty() && (output.json || !output.scores.empty())) {
    return invalid_argument("--json and --scores go with --out: standard output has the answers");
  }
  TRY_ASSIGN(const std::unique_ptr<VectorIndex> index,
             VectorIndex::open(options.index, runtime.runtime()));
  TRY_ASSIGN(const VectorFile queries, open_queries(options, *index));
  SearchOptions search = options.search();
  IndexFilter filter;
  if (!output.only.empty()) {
    TRY_ASSIGN(const size_t rows, integer_rows(output.only));
    TRY_ASSIGN(filter.ids, read_integers(output.only, rows, 1));
    search.filter = &filter;
  }
  TRY(choose_probes(options, *index, queries, search));
  if (output.out.empty()) {
    return search_all(shell, *index, queries, search,
                      [&](const Neighbors& found) { return print_found(shell, found); })
        .status();
  }
  const std::vector<std::string> inputs = {options.index, options.queries};
  TRY_ASSIGN(OutputFile ids, OutputFile::open(output.out, inputs));
  std::optional<OutputFile> scores;
  if (!output.scores.empty()) {
    TRY_ASSIGN(OutputFile file, OutputFile::open(output.scores, inputs));
    scores.emplace(std::move(file));
  }
  OutputFile* const scores_file = scores.has_value() ? &*scores : nullptr;
  TRY(ids.write(npy_header("<i8", queries.rows(), search.k)));
  if (scores_file != nullptr) TRY(scores_file->write(npy_header("<f4", queries.rows(), search.k)));
  TRY_ASSIGN(const double seconds,
             search_all(shell, *index, queries, search, [&](const Neighbors& found) {
               return write_found(ids, scores_file, found, search.k);
             }));
  TRY(ids.close());
  if (scores_file != nullptr) TRY(scores_file->close());
  if (!output.json) return ok_status();
  const double rate = seconds > 0 ? static_cast<double>(queries.rows()) / seconds : 0;
  return shell.print(json_line(Json{{"queries", queries.rows()},
                                    {"k", search.k},
                                    {"probes", probes_of(search, index->info())},
                                    {"search_seconds", seconds},
                                    {"queries_per_second", rate},
                                    {"bytes_per_vector", index->info().bytes_per_vector},
                                    {"cpu_level", index->info().cpu_level}}));
}

Status verb_search_info(Shell& shell, Arguments arguments) {
  InfoOptions options;
  Command command({"search info",
                   "",
                   "Says what an index holds and how it is coded.",
                   {"kvikk search info --index base.kvx",
                    "kvikk search info --index base.kvx --verify --json"}});
  command.add(options);
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();
  TRY(require(command, {"index"}));
  TRY_ASSIGN(const std::unique_ptr<VectorIndex> index, VectorIndex::open(options.index));
  if (options.verify) TRY(index->verify());
  const IndexInfo info = index->info();
  Json json = {{"vectors", info.vectors},
               {"removed", info.removed},
               {"dimensions", info.options.dimensions},
               {"bits", info.options.bits},
               {"metric", metric_name(info.options.metric)},
               {"transform", info.fitted ? "fitted" : "oblivious"},
               {"lists", info.lists},
               {"probes", info.probes},
               {"groups", Json::array()},
               {"attributes", info.options.attributes},
               {"keep", kept_name(info.options.kept)},
               {"code_bytes_per_vector", info.code_bytes},
               {"bytes_per_vector", info.bytes_per_vector},
               {"kept_bytes_per_vector", info.kept_bytes}};
  for (const auto& [dims, bits] : info.groups) {
    json["groups"].push_back(Json{{"dims", dims}, {"bits", bits}});
  }
  if (options.json) return shell.print(json_line(json));
  std::string text;
  for (const auto& [key, value] : json.items()) {
    std::string line = key;
    line.resize(24, ' ');
    text += line + (value.is_string() ? value.get<std::string>() : value.dump()) + "\n";
  }
  return shell.print(text);
}

Status verb_search_bench(Shell& shell, Arguments arguments) {
  FindOptions options;
  BenchOptions bench;
  SearchRuntimeOptions runtime;
  Command command(
      {"search bench",
       "",
       "Measures an index: all queries at once, and one after the other. The fastest of "
       "--repeat\nruns counts.",
       {"kvikk search bench --index base.kvx --queries q.npy --threads 1",
        "kvikk search bench --index base.kvx --queries q.npy --staged --json"}});
  command.add(options);
  command.add(bench);
  command.add(runtime);
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();
  TRY(require(command, {"index", "queries"}));
  TRY_ASSIGN(const std::unique_ptr<VectorIndex> index,
             VectorIndex::open(options.index, runtime.runtime()));
  TRY_ASSIGN(const VectorFile file, open_queries(options, *index));
  const size_t d = file.dimensions();
  std::vector<float> queries(file.rows() * d);
  TRY(file.read(0, file.rows(), queries.data()));
  SearchOptions search = options.search();
  TRY(choose_probes(options, *index, file, search));
  TRY_ASSIGN(const Taken together,
             fastest(shell, bench.repeat, [&] { return index->search(queries, search).status(); }));
  TRY_ASSIGN(const Taken alone, fastest(shell, bench.repeat, [&]() -> Status {
               for (size_t q = 0; q < file.rows(); ++q) {
                 TRY(index->search({queries.data() + q * d, d}, search).status());
               }
               return ok_status();
             }));
  const auto count = static_cast<double>(file.rows());
  const IndexInfo info = index->info();
  if (bench.json) {
    return shell.print(
        json_line(Json{{"vectors", info.vectors},
                       {"queries", file.rows()},
                       {"cpu_level", info.cpu_level},
                       {"probes", probes_of(search, info)},
                       {"batch_queries_per_second", count / together.seconds},
                       {"batch_processor_seconds", together.processor_seconds},
                       {"single_queries_per_second", count / alone.seconds},
                       {"single_milliseconds", alone.seconds / count * 1e3},
                       {"single_processor_milliseconds", alone.processor_seconds / count * 1e3}}));
  }
  return shell.print("all at once        " + rate_text(count / together.seconds) +
                     " queries/s\none after another  " + rate_text(count / alone.seconds) +
                     " queries/s, " + fixed_text(alone.seconds / count * 1e3, 3) + " ms each\n");
}

}  // namespace kvikk
