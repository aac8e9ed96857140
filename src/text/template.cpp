// The public face: parse() and render(), where errors of the interpreter become a Status.

#include "text/template.h"

#include <new>
#include <nlohmann/json.hpp>

#include "text/template_interp.h"

namespace kvikk {
namespace {

Status to_status(const jinja::Error& error) {
  if (error.line == 0) return {error.code, error.message};  // about the variables, not the template
  return {error.code, jinja::concat("line ", std::to_string(error.line), ": ", error.message)};
}

}  // namespace

Template::Template(std::shared_ptr<const jinja::Program> program) : program_(std::move(program)) {}

Result<Template> Template::parse(std::string source) {
  if (source.size() > kTemplateSourceBytesMax) {
    return exhausted(jinja::concat("a template of ", std::to_string(source.size()),
                                   " bytes; the limit is ",
                                   std::to_string(kTemplateSourceBytesMax)));
  }
  try {
    return Template(std::make_shared<const jinja::Program>(jinja::parse_program(source)));
  } catch (const jinja::Error& error) {
    return to_status(error);
  } catch (const std::bad_alloc&) {
    return exhausted("out of memory while parsing a template");
  }
}

Result<std::string> Template::render(const nlohmann::ordered_json& variables,
                                     const TemplateOptions& options) const {
  try {
    return jinja::Interpreter(*program_, options).render(variables);
  } catch (const jinja::Error& error) {
    return to_status(error);
  } catch (const std::bad_alloc&) {
    return exhausted("out of memory while rendering a template");
  }
}

}  // namespace kvikk
