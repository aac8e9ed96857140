#include "drafting/registry.h"

#include "drafting/ngram.h"
#include "drafting/suffix.h"

namespace kvikk {
namespace {

struct TokenDrafterDef {
  std::string_view name;
  std::unique_ptr<Drafter> (*make)();
};

constexpr TokenDrafterDef kTokenDrafters[] = {
    {"ngram", make_ngram_drafter},
    {"suffix", make_suffix_drafter},
};

constexpr std::string_view kAuto = "suffix";  // costs nothing where it does not help
constexpr std::string_view kModelPrefix = "model:";

}  // namespace

Result<SpecChoice> parse_spec(std::string_view text) {
  if (text.empty() || text == "none") return SpecChoice{};
  if (text == "auto") text = kAuto;
  std::string known = "none, auto";
  for (const TokenDrafterDef& def : kTokenDrafters) {
    if (def.name == text) return SpecChoice{std::string(text), {}};
    known += ", " + std::string(def.name);
  }
  if (text.starts_with(kModelPrefix) && text.size() > kModelPrefix.size()) {
    return SpecChoice{"model", std::string(text.substr(kModelPrefix.size()))};
  }
  return invalid_argument("spec '" + std::string(text) + "' is not known; it can be " + known +
                          " or model:MODEL");
}

std::unique_ptr<Drafter> make_token_drafter(const SpecChoice& choice) {
  for (const TokenDrafterDef& def : kTokenDrafters) {
    if (def.name == choice.drafter) return def.make();
  }
  return nullptr;
}

}  // namespace kvikk
