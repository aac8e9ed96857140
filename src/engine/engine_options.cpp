// What EngineOptions must be like on any machine. What this machine lacks is found at load.

#include "kvikk/engine_options.h"

#include "base/range_check.h"
#include "drafting/registry.h"
#include "kv/registry.h"

namespace kvikk {
namespace {

template <class Names>
Status one_of(const char* name, const std::string& value, const Names& names) {
  std::string known;
  for (const std::string_view candidate : names) {
    if (value.empty() || value == candidate) return ok_status();
    known += (known.empty() ? "" : ", ") + std::string(candidate);
  }
  return invalid_argument(std::string(name) + " '" + value + "' is not known; it can be " + known);
}

}  // namespace

Status validate(const EngineOptions& options) {
  RangeCheck check("option");
  options.visit(check);
  TRY(check.take_status());
  if (options.kv != kKvAuto) TRY(parse_kv(options.kv, KvFormat::kBF16).status());
  TRY_ASSIGN(const SpecChoice spec, parse_spec(options.spec));
  if (options.spec_memory > 0 && spec.drafter.empty()) {
    return invalid_argument("spec_memory " + std::to_string(options.spec_memory) +
                            " keeps answers to guess from, but nobody guesses: add spec 'suffix'");
  }
  TRY(one_of("weights", options.weights, kWeightsNames));
  if (options.exact && !options.weights.empty()) {
    return invalid_argument("weights '" + options.weights +
                            "' are rounded; with exact they are as stored: leave one out");
  }
  return one_of("cpu_level", options.cpu_level, kCpuLevelNames);
}

}  // namespace kvikk
