#include "load_plan.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <optional>
#include <random>

#include "text/json_text.h"
#include "text/numbers.h"

namespace kvikk {
namespace {

constexpr size_t kTraceRequestsMax = 1000000;
constexpr size_t kTraceTokensMax = size_t{1} << 24;  // of a request
constexpr size_t kTraceBlockTokens = 512;            // of one of Mooncake's hash ids
constexpr uint64_t kOwnBlocks = uint64_t{1} << 40;   // ids of what no other request has

// Between 0 and 1, without the standard library's distributions, which differ between systems.
double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1.0p-53; }

std::vector<LoadShape> made_up(const LoadOptions& options) {
  std::mt19937_64 random(static_cast<uint64_t>(options.seed));
  std::vector<LoadShape> shapes;
  double at = 0;
  for (int32_t i = 0; i < options.requests; ++i) {
    if (options.rate > 0 && i > 0 && i % options.burst == 0) {
      at -= std::log(1.0 - uniform(random)) * options.burst / options.rate;
    }
    const bool is_long = options.long_prompt > 0 && i % 8 == 7;
    const int32_t tokens = is_long ? options.long_prompt : options.prompt;
    const int32_t shared = std::min(options.shared, tokens);
    LoadShape shape;
    shape.at_seconds = at;
    shape.blocks = {{0, static_cast<size_t>(shared)},
                    {kOwnBlocks + static_cast<uint64_t>(i), static_cast<size_t>(tokens - shared)}};
    shape.answer_tokens = static_cast<size_t>(options.answer);
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

size_t scaled(size_t tokens, double factor) {
  return std::max<size_t>(1, static_cast<size_t>(static_cast<double>(tokens) * factor + 0.5));
}

// What a line of a trace says; `blocks` may be empty.
struct TraceLine {
  double seconds = 0;
  size_t prompt_tokens = 0;
  size_t answer_tokens = 0;
  std::vector<uint64_t> blocks;
};

Result<TraceLine> mooncake_line(const std::string& line, const std::string& where) {
  TRY_ASSIGN(const auto json, parse_json_object(line, where));
  const auto time = json_unsigned(json, "timestamp");
  const auto input = json_unsigned(json, "input_length");
  const auto output = json_unsigned(json, "output_length");
  const auto ids = json.find("hash_ids");
  if (!time || !input || !output || ids == json.end() || !ids->is_array()) {
    return damaged(where + " must have timestamp, input_length, output_length and hash_ids");
  }
  TraceLine read;
  read.seconds = static_cast<double>(*time) / 1000.0;
  read.prompt_tokens = *input;
  read.answer_tokens = *output;
  for (const auto& id : *ids) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kOwnBlocks) {
      return damaged(where + ": a hash id must be a whole number below 2^40");
    }
    read.blocks.push_back(id.get<uint64_t>());
  }
  return read;
}

// "2023-11-16 18:17:03.9799600,4808,10"
Result<TraceLine> azure_line(const std::string& line, const std::string& where) {
  const std::string shape =
      where +
      " must be TIMESTAMP,ContextTokens,GeneratedTokens, a time like 2023-11-16 18:17:03.98";
  const size_t first = line.find(','), second = line.find(',', first + 1);
  if (first == std::string::npos || second == std::string::npos) return damaged(shape);
  std::tm parts{};
  const std::string time = line.substr(0, first);
  const char* const rest = ::strptime(time.c_str(), "%Y-%m-%d %H:%M:%S", &parts);
  const auto fraction = rest != nullptr && *rest == '.'
                            ? parse_number<double>("0" + std::string(rest))
                            : std::optional<double>(0.0);
  std::string last = line.substr(second + 1);
  while (last.ends_with('\r') || last.ends_with(' ')) last.pop_back();
  const auto input = parse_number<uint64_t>(line.substr(first + 1, second - first - 1));
  const auto output = parse_number<uint64_t>(last);
  if (rest == nullptr || !fraction || !input || !output) return damaged(shape);
  TraceLine read;
  read.seconds = static_cast<double>(::timegm(&parts)) + *fraction;
  read.prompt_tokens = *input;
  read.answer_tokens = *output;
  return read;
}

LoadShape shape_of(const TraceLine& line, size_t index, double start, const LoadOptions& options) {
  LoadShape shape;
  shape.at_seconds = std::max(0.0, (line.seconds - start) / options.trace_speed);
  shape.answer_tokens = scaled(line.answer_tokens, options.trace_length);
  size_t left = line.prompt_tokens;
  for (const uint64_t id : line.blocks) {
    const size_t tokens = std::min(left, kTraceBlockTokens);
    if (tokens == 0) break;
    left -= tokens;
    shape.blocks.push_back({id, scaled(tokens, options.trace_length)});
  }
  if (left > 0) shape.blocks.push_back({kOwnBlocks + index, scaled(left, options.trace_length)});
  return shape;
}

Result<std::vector<LoadShape>> from_trace(Shell& shell, const LoadOptions& options, size_t most) {
  TRY_ASSIGN(LineReader reader, LineReader::open(shell, options.trace));
  const bool csv = options.trace.ends_with(".csv");
  std::vector<LoadShape> shapes;
  std::string line;
  double start = 0;
  for (size_t number = 0; shapes.size() < std::min(most, kTraceRequestsMax); ++number) {
    TRY_ASSIGN(const bool more, reader.next(line));
    if (!more) break;
    if (line.empty() || (csv && number == 0)) continue;  // the first names the columns
    TRY_ASSIGN(const TraceLine read,
               csv ? azure_line(line, reader.where()) : mooncake_line(line, reader.where()));
    if (read.prompt_tokens > kTraceTokensMax || read.answer_tokens > kTraceTokensMax) {
      return damaged(reader.where() + ": a request of more than " +
                     std::to_string(kTraceTokensMax) + " tokens");
    }
    if (shapes.empty()) start = read.seconds;
    shapes.push_back(shape_of(read, number, start, options));
  }
  if (shapes.empty()) return damaged(options.trace + " has no requests");
  std::stable_sort(shapes.begin(), shapes.end(), [](const LoadShape& a, const LoadShape& b) {
    return a.at_seconds < b.at_seconds;
  });
  return shapes;
}

}  // namespace

Result<std::vector<LoadShape>> plan_load(Shell& shell, const LoadOptions& options) {
  if (!options.trace.empty() && options.rate > 0) {
    return invalid_argument("--trace has times of its own: leave --rate out");
  }
  if (options.burst > 1 && options.rate <= 0) return invalid_argument("--burst needs --rate");
  if (options.clients.empty() ||
      *std::min_element(options.clients.begin(), options.clients.end()) < 1) {
    return invalid_argument("--clients needs a number");
  }
  if (options.trace.empty()) return made_up(options);
  return from_trace(shell, options, static_cast<size_t>(options.requests));
}

std::string load_body(const LoadOptions& options, const LoadShape& shape, double tokens_per_word) {
  std::string prompt;
  for (const LoadShape::Block& block : shape.blocks) {
    std::mt19937_64 random(block.id * 1000003 + static_cast<uint64_t>(options.seed));
    const auto words =
        static_cast<size_t>(static_cast<double>(block.tokens) / tokens_per_word + 0.5);
    for (size_t i = 0; i < words; ++i) prompt += " " + std::to_string(10 + random() % 90);
  }
  if (prompt.empty()) prompt = " 10";
  nlohmann::ordered_json body = {{"prompt", prompt.substr(1)},
                                 {"max_tokens", shape.answer_tokens},
                                 {"temperature", 0},
                                 {"stream", true},
                                 {"stream_options", {{"include_usage", true}}}};
  if (!options.model.empty()) body["model"] = options.model;
  return body.dump();
}

}  // namespace kvikk
