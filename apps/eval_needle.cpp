// kvikk eval needle: what a model still finds in a long text, with each way of keeping the cache.

#include <algorithm>
#include <memory>

#include "kv_list.h"
#include "model_source.h"
#include "needle.h"
#include "svg.h"
#include "text/json_text.h"
#include "text/numbers.h"
#include "text_pieces.h"
#include "verbs.h"

namespace kvikk {
namespace {

struct NeedleOptions {
  std::string haystack;
  std::vector<int32_t> lengths = {2048, 4096};
  int32_t depths = 10;
  bool json = false;
  std::string plot;

  template <class V>
  void visit(V&& v) {
    v(haystack, "haystack", 0, 4096, "file with the text");
    v(lengths, "lengths", static_cast<int>(kNeedleLengthMin), 1 << 24, "tokens of a prompt");
    v(depths, "depths", 1, static_cast<int>(kNeedlesMax),
      "needles in each text, from its beginning to its end");
    v(json, "json", false, true, "one JSON document instead of the table");
    v(plot, "plot", 0, 4096, "also draw a heat map into this SVG file");
  }
};

struct Found {
  std::string kv;
  size_t length;
  std::vector<Needle> needles;

  size_t count() const {
    return static_cast<size_t>(
        std::count_if(needles.begin(), needles.end(), [](const Needle& n) { return n.found; }));
  }
};

nlohmann::ordered_json report_json(const std::string& model, const std::vector<Found>& all) {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  nlohmann::ordered_json scores = nlohmann::ordered_json::array();
  for (const Found& f : all) {
    for (const Needle& needle : f.needles) {
      results.push_back({{"kv", f.kv},
                         {"length", f.length},
                         {"depth_percent", 100.0 * needle.depth},
                         {"found", needle.found},
                         {"answer", needle.answer}});
    }
    scores.push_back(
        {{"kv", f.kv}, {"length", f.length}, {"found", f.count()}, {"asked", f.needles.size()}});
  }
  return {{"model", model}, {"scores", scores}, {"results", results}};
}

std::string column(std::string_view text) { return " " + align_right(text, 9); }

std::string table_head(const std::vector<int32_t>& lengths) {
  std::string head = "needles found in texts of so many tokens\n\ncache       ";
  for (const int32_t length : lengths) head += column(count_text(static_cast<uint64_t>(length)));
  return head + "\n";
}

// A panel for each cache: lengths to the right, depths downwards; green is found.
std::string heat_map(const std::vector<Found>& all, const std::vector<int32_t>& lengths,
                     size_t depths, const std::string& title) {
  constexpr double kCellWidth = 44, kCellHeight = 14, kLeft = 60, kTop = 64, kGap = 30;
  const size_t panels = all.size() / lengths.size();
  const double panel_width = kCellWidth * static_cast<double>(lengths.size());
  const double width = kLeft + static_cast<double>(panels) * (panel_width + kGap);
  const double bottom = kTop + kCellHeight * static_cast<double>(depths);
  std::string svg = svg_head(std::max(width, 420.0), bottom + 50);
  svg += text_at(kLeft, 22, "start", title);
  svg += text_at(kLeft - 6, kTop + 12, "end", "begins");
  svg += text_at(kLeft - 6, bottom - 3, "end", "ends");
  for (size_t i = 0; i < all.size(); ++i) {
    const double panel = kLeft + static_cast<double>(i / lengths.size()) * (panel_width + kGap);
    const double x = panel + kCellWidth * static_cast<double>(i % lengths.size());
    if (i % lengths.size() == 0) svg += text_at(panel, kTop - 12, "start", all[i].kv);
    for (size_t d = 0; d < all[i].needles.size(); ++d) {
      svg += rect_at(x + 1, kTop + kCellHeight * static_cast<double>(d) + 1, kCellWidth - 2,
                     kCellHeight - 2, all[i].needles[d].found ? "#1a7f37" : "#d1242f");
    }
    svg += text_at(x + kCellWidth / 2, bottom + 18, "middle", std::to_string(all[i].length));
  }
  return svg + text_at(kLeft, bottom + 38, "start", "tokens of the text") + "</svg>\n";
}

Status check_options(const NeedleOptions& options) {
  if (options.haystack.empty()) return invalid_argument("--haystack FILE is missing");
  if (options.lengths.empty()) return invalid_argument("--lengths is empty");
  return ok_status();
}

}  // namespace

Status verb_eval_needle(Shell& shell, Arguments arguments) {
  ModelOptions model;
  NeedleOptions options;
  EngineOptions engine_options;
  Command command({"eval needle",
                   "",
                   "Hides numbers in a long text and asks for each of them, with every cache of "
                   "--kv A,B,..\n(default: the exact one). A model that does not find them with an "
                   "exact cache tells nothing.",
                   {"kvikk eval needle -m qwen2.5-coder-1.5b --haystack book.txt --kv bf16,turbo4",
                    "kvikk eval needle --haystack book.txt --lengths 2048,8192 --plot map.svg"}});
  command.add(model, {"model"});
  command.add_short("model", 'm');
  command.add(options);
  command.add(engine_options, {"threads", "exact", "kv", "weights", "cpu_level"});
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();
  TRY(check_options(options));
  TRY_ASSIGN(const std::vector<std::string> caches, split_kv_list(engine_options.kv));
  TRY_ASSIGN(const std::string haystack, read_file(options.haystack, kTextBytesMax));
  TRY_ASSIGN(const std::string path, find_model(shell, model));
  TRY_ASSIGN(const std::unique_ptr<OutputFile> plot,
             OutputFile::open_if_named(options.plot, {path, options.haystack}));
  const auto longest = *std::max_element(options.lengths.begin(), options.lengths.end());
  TRY(fit_context(static_cast<int64_t>(needle_context(static_cast<size_t>(longest))),
                  "the longest text and its answer need", engine_options));
  std::vector<Found> all;
  if (!options.json) TRY(shell.print(table_head(options.lengths)));
  for (const std::string& kv : caches) {
    engine_options.kv = kv;
    TRY_ASSIGN(LoadedEngine loaded, load_engine(shell, model, path, engine_options));
    std::string line = loaded.engine->options().kv;
    line.resize(std::max<size_t>(line.size() + 1, 12), ' ');
    for (const int32_t length : options.lengths) {
      TRY_ASSIGN(std::vector<Needle> needles,
                 find_needles(*loaded.engine, haystack, static_cast<size_t>(length),
                              static_cast<size_t>(options.depths), [&] { return shell.go_on(); }));
      all.push_back({loaded.engine->options().kv, static_cast<size_t>(length), std::move(needles)});
      line += column(std::to_string(all.back().count()) + "/" + std::to_string(options.depths));
    }
    if (!options.json) TRY(shell.print(line + "\n"));
  }
  if (options.json) TRY(shell.print(json_line(report_json(path, all))));
  if (plot == nullptr) return ok_status();
  const std::string title = path.substr(path.rfind('/') + 1) + ": needles found (green)";
  TRY(plot->write(heat_map(all, options.lengths, static_cast<size_t>(options.depths), title)));
  return plot->close();
}

}  // namespace kvikk
