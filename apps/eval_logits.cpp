// kvikk eval logits: raw logits of a list of tokens, and the most likely tokens that follow.

#include <algorithm>
#include <numeric>

#include "engine/evaluate.h"
#include "model_source.h"
#include "text/json_text.h"
#include "verbs.h"

namespace kvikk {
namespace {

struct LogitsOptions {
  std::string tokens;
  std::string positions;
  std::string out;
  int32_t greedy = 0;
  bool json = false;

  template <class V>
  void visit(V&& v) {
    v(tokens, "tokens", 0, 4096, "file with a JSON list of token ids");
    v(positions, "positions", 0, 4096, "file with a JSON list of indices; default all");
    v(out, "out", 0, 4096, "file for the logits: float32 [positions, vocabulary]");
    v(greedy, "greedy", 0, 1 << 20, "then print the N most likely tokens that follow");
    v(json, "json", false, true, "print the shape as JSON");
  }
};

constexpr size_t kTokensFileBytesMax = size_t{1} << 28;  // a list of token ids

Result<std::vector<TokenId>> read_numbers_file(const std::string& path) {
  TRY_ASSIGN(const std::string text, read_file(path, kTokensFileBytesMax));
  TRY_ASSIGN(const nlohmann::ordered_json json, parse_json(text, path));
  return json_numbers(json, path);
}

// Where each row of logits goes: the engine wants positions that ascend, a user may want any.
struct RowPlan {
  std::vector<uint32_t> positions;        // ascending, each once
  std::vector<std::vector<size_t>> rows;  // [positions]: rows of the file
  bool in_order = true;                   // row i of the file is position i
  size_t row_count = 0;                   // of the file
};

Result<RowPlan> plan_rows(const std::vector<TokenId>& wanted, size_t tokens,
                          const std::string& path) {
  RowPlan plan;
  plan.row_count = wanted.size();
  std::vector<size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return wanted[a] < wanted[b]; });
  for (const size_t row : order) {
    const auto position = static_cast<uint32_t>(wanted[row]);
    if (position >= tokens) {
      return invalid_argument(path + ": position " + std::to_string(position) + " is outside the " +
                              std::to_string(tokens) + " tokens");
    }
    if (plan.positions.empty() || plan.positions.back() != position) {
      plan.positions.push_back(position);
      plan.rows.emplace_back();
    }
    plan.in_order = plan.in_order && row == plan.positions.size() - 1;
    plan.rows.back().push_back(row);
  }
  return plan;
}

Result<RowPlan> read_plan(const LogitsOptions& options, size_t tokens) {
  if (!options.positions.empty()) {
    TRY_ASSIGN(const std::vector<TokenId> wanted, read_numbers_file(options.positions));
    return plan_rows(wanted, tokens, options.positions);
  }
  std::vector<TokenId> all(tokens);
  std::iota(all.begin(), all.end(), 0);
  return plan_rows(all, tokens, options.tokens);
}

// The context must hold the tokens; nothing else is run, so no more than that is needed.
Status set_context(EngineOptions& engine, size_t tokens) {
  if (engine.context > 0) return ok_status();
  if (tokens > INT32_MAX) return exhausted("more than 2^31 tokens");
  engine.context = static_cast<int32_t>(tokens);
  return ok_status();
}

std::string_view row_bytes_of(std::span<const float> logits) {
  return {reinterpret_cast<const char*>(logits.data()), logits.size() * sizeof(float)};
}

}  // namespace

Status verb_eval_logits(Shell& shell, Arguments arguments) {
  ModelOptions model;
  LogitsOptions options;
  EngineOptions engine_options;
  Command command({"eval logits",
                   "",
                   "Writes the raw logits at the given positions of a list of tokens.",
                   {"kvikk eval logits -m model.gguf --tokens t.json --out logits.f32",
                    "kvikk eval logits -m model.gguf --tokens t.json --out l.f32 --exact --greedy "
                    "16"}});
  command.add(model, {"model"});
  command.add_short("model", 'm');
  command.add(options);
  command.add(engine_options, {"threads", "chunk", "exact", "kv", "weights", "cpu_level"});
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();
  if (options.tokens.empty()) return invalid_argument("--tokens FILE.json is missing");
  if (options.out.empty()) return invalid_argument("--out FILE.f32 is missing");
  TRY(validate(engine_options));

  TRY_ASSIGN(const std::vector<TokenId> tokens, read_numbers_file(options.tokens));
  if (tokens.empty()) return invalid_argument(options.tokens + ": has no tokens");
  TRY_ASSIGN(const RowPlan plan, read_plan(options, tokens.size()));
  TRY_ASSIGN(const std::string path, find_model(shell, model));
  TRY_ASSIGN(OutputFile out,
             OutputFile::open(options.out, {path, options.tokens, options.positions}));
  TRY(set_context(engine_options, tokens.size() + static_cast<size_t>(options.greedy)));
  TRY_ASSIGN(LoadedEngine loaded, load_engine(shell, model, path, engine_options));

  LogitsRequest request;
  request.tokens = tokens;
  request.positions = plan.positions;
  request.greedy = static_cast<size_t>(options.greedy);
  request.cancelled = [&shell] { return shell.interrupts().raised(); };
  request.row = [&](size_t index, std::span<const float> logits) -> Status {
    const std::string_view bytes = row_bytes_of(logits);
    if (plan.in_order) return out.write(bytes);
    for (const size_t row : plan.rows[index]) TRY(out.write_at(row * bytes.size(), bytes));
    return ok_status();
  };
  TRY_ASSIGN(const std::vector<TokenId> greedy, evaluate_logits(*loaded.engine, request));
  TRY(out.close());
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (options.json) {
    json["positions"] = plan.row_count;
    json["vocabulary"] = loaded.engine->config().vocabulary;
  }
  if (options.greedy > 0) json["greedy"] = greedy;
  return json.empty() ? ok_status() : shell.print(json_line(json));
}

}  // namespace kvikk
