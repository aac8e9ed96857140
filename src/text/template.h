#pragma once
// Chat templates: an interpreter of the Jinja subset that published models use, rendering byte for
// byte what Jinja2 renders under the settings of the reference tokenizer library (immutable
// sandbox, trim_blocks, lstrip_blocks, loop controls, the generation tag, raise_exception,
// strftime_now, a plain tojson).
//
// What of Jinja2 is not here, and an error where a template gets to it: other templates (include,
// import, extends, block), autoescape, the filters pprint random striptags urlize wordwrap,
// str.encode, str.translate, integers beyond 128 bits, sets, complex numbers. `self` is undefined.
//
// A template comes with a model file from anywhere, so it is hostile until proven otherwise: it
// sees its variables and nothing else, and everything it can drive has a limit with a name. Text is
// UTF-8; lengths, indexes and slices count code points, as in Python.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/status.h"

namespace kvikk {

namespace jinja {
struct Program;
}

// What one parse accepts.
inline constexpr size_t kTemplateSourceBytesMax = size_t{1} << 20;
inline constexpr int kTemplateNestingMax = 200;          // brackets and blocks within each other
inline constexpr int kTemplateExpressionDepthMax = 500;  // a + b + c + ... counts one per operator

// What one render may use. A legitimate chat of a million tokens stays far below all of these.
struct TemplateLimits {
  // One for each statement and expression evaluated, and for each few bytes or items that a builtin
  // handles. Ten million take well under a second.
  uint64_t steps_max = 10'000'000;
  int depth_max = 1500;       // expressions, statements and macro calls within each other
  int value_depth_max = 400;  // lists and dicts within each other, when printed or compared
  size_t output_bytes_max = size_t{32} << 20;
  size_t string_bytes_max = size_t{32} << 20;
  size_t list_items_max = size_t{1} << 20;
  size_t memory_bytes_max = size_t{256} << 20;  // alive at once, the variables included
};

struct TemplateOptions {
  TemplateLimits limits;
  // What strftime_now sees: "YYYY-MM-DDTHH:MM:SS", optionally with ".ffffff"; empty means the local
  // clock.
  std::string now;
};

// A parsed template. Copies share it; any number of threads may render it at once.
class Template {
 public:
  // kInvalidArgument with "line N: why" for a syntax error, kExhausted beyond a limit above.
  static Result<Template> parse(std::string source);

  // `variables` is a JSON object: messages, tools, add_generation_prompt, bos_token, ... As in the
  // reference library, `tools` and `documents` are none and `add_generation_prompt` is false where
  // the object does not name them; any other name that it lacks is undefined.
  // Errors, all with "line N: why": kInvalidArgument for what the template itself raises and for
  // operations that do not fit their values, kUnsupported for the few parts of Jinja that chat
  // templates have no use for, kExhausted beyond a limit.
  Result<std::string> render(const nlohmann::ordered_json& variables,
                             const TemplateOptions& options = {}) const;

 private:
  explicit Template(std::shared_ptr<const jinja::Program> program);
  std::shared_ptr<const jinja::Program> program_;
};

}  // namespace kvikk
