// Any bytes as a template: parsing gives an error or a template, and rendering it gives an error or
// a text within the limits, the same one each time.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"
#include "text/template.h"

namespace kvikk {
namespace {

constexpr char kVariables[] = R"({
  "messages": [
    {"role": "system", "content": "S \u00e9"},
    {"role": "user", "content": [{"type": "text", "text": "a\n b"}, {"type": "image"}]},
    {"role": "assistant", "content": "<think>x</think>y",
     "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"a": 1.5, "b": null}}}]},
    {"role": "tool", "content": "{\"t\": 21.5}"}],
  "tools": [{"type": "function", "function": {"name": "f", "description": "d",
    "parameters": {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}}}],
  "s": "aBc, d\u00c9f \ud83d\ude42 ", "i": 3, "f": 2.5, "l": [3, 1, 2, "b", null, [1]],
  "d": {"b": 1, "a": "x", "c": {"k": [true, false]}}, "add_generation_prompt": true})";

// `again`: renders twice; both must be the same.
void check_template(std::string source, bool again) {
  static const auto variables = nlohmann::ordered_json::parse(kVariables);
  const Result<Template> parsed = Template::parse(std::move(source));
  if (!parsed.ok()) {
    CHECK(!parsed.status().message().empty());
    return;
  }
  TemplateOptions options;  // small, for many runs
  options.now = "2026-01-02T03:04:05";
  options.limits.steps_max = 5'000;
  options.limits.output_bytes_max = options.limits.string_bytes_max = 50'000;
  options.limits.list_items_max = 5'000;
  options.limits.memory_bytes_max = 1'000'000;
  const Result<std::string> first = parsed->render(variables, options);
  if (first.ok()) {
    CHECK(first->size() <= options.limits.output_bytes_max);
  } else {
    CHECK(!first.status().message().empty());
  }
  if (!again) return;
  const Result<std::string> second = parsed->render(variables, options);
  CHECK(first.ok() == second.ok());
  if (first.ok()) {
    CHECK(*first == *second);
  } else {
    CHECK(first.status().message() == second.status().message());
  }
}

}  // namespace
}  // namespace kvikk

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kSourceBytesMax = 4096;
  if (size > kSourceBytesMax) return 0;
  kvikk::check_template(std::string(reinterpret_cast<const char*>(data), size), size % 8 == 0);
  return 0;
}
