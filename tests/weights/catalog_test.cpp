#include "weights/catalog.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

namespace kvikk {
namespace {

class CatalogTest : public testing::Test {
 protected:
  CatalogTest() { std::filesystem::create_directories(folder_); }
  ~CatalogTest() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, size_t bytes) const {
    std::ofstream(folder_ + "/" + name) << std::string(bytes, 'x');
  }

  const std::string folder_ = testing::TempDir() + "kvikk-catalog-" + std::to_string(::getpid());
};

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

TEST_F(CatalogTest, EveryEntryAddsUp) {
  std::set<std::string_view> names;
  for (const CatalogEntry& entry : catalog()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
    EXPECT_TRUE(is_sha256(entry.sha256)) << entry.name;
    EXPECT_FALSE(entry.licence.empty()) << entry.name;
    uint64_t bytes = 0;
    for (const CatalogPiece& piece : entry.pieces) {
      EXPECT_TRUE(is_sha256(piece.sha256)) << piece.package;
      EXPECT_GT(piece.package_bytes, 0u);
      bytes += piece.bytes;
    }
    EXPECT_EQ(bytes, entry.bytes) << entry.name;
    for (const CatalogPiece& piece : entry.terms) EXPECT_TRUE(is_sha256(piece.sha256));
  }
  EXPECT_EQ(catalog().size(), 5u);
}

TEST_F(CatalogTest, PublishedNamesSizesAndHashes) {
  EXPECT_EQ(catalog()[0].name, "smollm2-135m");
  const CatalogEntry* entry = find_catalog_entry("qwen2.5-coder-1.5b");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->bytes, 1117320768u);
  EXPECT_EQ(entry->pieces.size(), 22u);
  EXPECT_EQ(entry->sha256, "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046");
  entry = find_catalog_entry("gemma-3-270m");
  ASSERT_NE(entry, nullptr);
  EXPECT_FALSE(entry->terms.empty());
  EXPECT_EQ(find_catalog_entry("gemma"), nullptr);
  EXPECT_EQ(find_catalog_entry(""), nullptr);
}

TEST_F(CatalogTest, DefaultFolderFollowsTheEnvironment) {
  ::setenv("HOME", "/h/somebody", 1);
  ::unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(default_models_dir(), "/h/somebody/.cache/kvikk/models");
  ::setenv("XDG_CACHE_HOME", "/cache of mine", 1);
  EXPECT_EQ(default_models_dir(), "/cache of mine/kvikk/models");
  ::setenv("XDG_CACHE_HOME", "relative", 1);  // the XDG specification: ignore it
  EXPECT_EQ(default_models_dir(), "/h/somebody/.cache/kvikk/models");
  ::unsetenv("HOME");
  EXPECT_EQ(default_models_dir().front(), '/');
}

TEST_F(CatalogTest, NameOfAModelThatIsNotFetched) {
  const Result<std::string> result = resolve_model("smollm2-135m", folder_);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kNotFound);
  EXPECT_NE(result.status().message().find("kvikk pull smollm2-135m"), std::string::npos);
}

TEST_F(CatalogTest, FolderThatIsFetched) {
  const CatalogEntry& entry = *find_catalog_entry("all-minilm-l6-v2");
  ASSERT_FALSE(entry.folder.empty());
  const std::string folder = folder_ + "/all-minilm-l6-v2";
  for (const CatalogPiece& piece : entry.pieces) {
    EXPECT_FALSE(is_fetched(entry, folder_)) << "lacks " << entry.file_of(piece);
    const std::filesystem::path file = folder + "/" + entry.file_of(piece);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file).close();
    std::filesystem::resize_file(file, piece.bytes);
  }
  EXPECT_TRUE(is_fetched(entry, folder_));
  const Result<std::string> result = resolve_model("all-minilm-l6-v2", folder_);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(*result, folder);
}

TEST_F(CatalogTest, NameOfAModelThatIsFetched) {
  const CatalogEntry& entry = catalog()[0];
  write("smollm2-135m.gguf", 100);
  EXPECT_FALSE(is_fetched(entry, folder_)) << "too short";
  std::filesystem::resize_file(folder_ + "/smollm2-135m.gguf", entry.bytes);
  EXPECT_TRUE(is_fetched(entry, folder_));
  const Result<std::string> result = resolve_model("smollm2-135m", folder_);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(*result, folder_ + "/smollm2-135m.gguf");
}

TEST_F(CatalogTest, FileAndFolder) {
  write("mine.gguf", 10);
  const Result<std::string> file = resolve_model(folder_ + "/mine.gguf", folder_);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(*file, folder_ + "/mine.gguf");
  EXPECT_EQ(resolve_model(folder_, folder_).status().code(), StatusCode::kNotFound);
  write("config.json", 2);
  const Result<std::string> checkpoint = resolve_model(folder_, folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(*checkpoint, folder_);
  const Result<std::string> missing = resolve_model("nowhere/a.gguf", folder_);
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_NE(missing.status().message().find("no such file"), std::string::npos);
}

TEST_F(CatalogTest, UnknownNameNamesTheNearest) {
  const auto message = [&](std::string_view name) {
    return resolve_model(name, folder_).status().message();
  };
  EXPECT_NE(message("smolm2-135m").find("did you mean 'smollm2-135m'?"), std::string::npos);
  EXPECT_NE(message("gemma").find("did you mean 'gemma-3-270m'?"), std::string::npos);
  EXPECT_NE(message("coder-0.5b").find("'qwen2.5-coder-0.5b'"), std::string::npos);
  EXPECT_EQ(message("mixtral").find("did you mean"), std::string::npos);
  EXPECT_NE(message("mixtral").find("smollm2-135m, qwen2.5-coder-1.5b"), std::string::npos);
}

TEST_F(CatalogTest, NamesThatCannotBeRight) {
  const auto code = [&](std::string_view name) {
    return resolve_model(name, folder_).status().code();
  };
  EXPECT_EQ(code(""), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(std::string(1 << 20, 'a')), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(std::string("a\0b", 3)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(std::string(1000, 'a')), StatusCode::kNotFound);
}

}  // namespace
}  // namespace kvikk
