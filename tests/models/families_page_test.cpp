// docs/models.md holds the table of families as the registry has it.

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "models/registry.h"

namespace kvikk {
namespace {

TEST(FamiliesPage, IsCurrent) {
  std::ifstream file(KVIKK_TEST_DATA "/../../docs/models.md");
  const std::string page{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::string begin = "<!-- families -->\n";
  const size_t first = page.find(begin);
  ASSERT_NE(first, std::string::npos);
  const size_t at = first + begin.size();
  const size_t end = page.find("<!-- /families -->", at);
  ASSERT_NE(end, std::string::npos);
  EXPECT_EQ(page.substr(at, end - at), families_table())
      << "paste what 'kvikk models --families' prints";
}

TEST(FamiliesPage, NamesAreUnique) {
  std::string seen = " ";
  for (const ModelDef* def : model_registry()) {
    std::vector<const char*> names(def->model_types.begin(), def->model_types.end());
    for (const char* name : names) {
      if (name == nullptr) continue;
      EXPECT_EQ(seen.find(" " + std::string(name) + " "), std::string::npos) << name;
      seen += std::string(name) + " ";
    }
    EXPECT_NE(std::string(def->goldens), "") << def->name;
  }
}

}  // namespace
}  // namespace kvikk
