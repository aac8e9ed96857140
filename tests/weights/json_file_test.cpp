// JSON files of model folders: what is refused, and that the message says where.

#include "weights/json_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "weights/temp_folder.h"

namespace kvikk {
namespace {

void expect_refused(const std::string& text, StatusCode code, std::string_view part) {
  const auto parsed = parse_json("config.json", text);
  ASSERT_FALSE(parsed.ok()) << text;
  EXPECT_EQ(static_cast<int>(parsed.status().code()), static_cast<int>(code));
  const std::string& message = parsed.status().message();
  EXPECT_EQ(message.find("config.json: "), 0u) << message;
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(JsonFile, Values) {
  const auto parsed = parse_json("x", R"({"a":[1,{"b":"ü"}],"c":{"a":1e400,"b":null}})");
  // 1e400 is no double: the library says so.
  EXPECT_FALSE(parsed.ok());
  const auto good = parse_json("x", R"({"a":[1,{"b":"ü"}],"c":{"a":-2.5,"b":null}})");
  ASSERT_TRUE(good.ok()) << good.status().message();
  EXPECT_EQ((*good)["a"][1]["b"], "ü");
  EXPECT_EQ((*good)["c"]["a"], -2.5);
}

TEST(JsonFile, Faults) {
  expect_refused("", StatusCode::kDamaged, "not valid JSON: byte 1:");
  expect_refused("{\"a\":1,}", StatusCode::kDamaged, "byte 8");
  expect_refused("{\"a\":1} x", StatusCode::kDamaged, "byte 9");
  expect_refused("{\"a\":\"\xff\"}", StatusCode::kDamaged, "byte");
  expect_refused("{\"a\":1,\"b\":{\"c\":1,\"c\":2}}", StatusCode::kDamaged, "'c' is there twice");
  expect_refused(std::string(65, '[') + std::string(65, ']'), StatusCode::kExhausted,
                 "deeper than 64");
  expect_refused(std::string(1 << 20, '['), StatusCode::kDamaged, "byte");
  EXPECT_TRUE(parse_json("x", std::string(64, '[') + std::string(64, ']')).ok());
}

TEST(JsonFile, Files) {
  const TempFolder temp;
  EXPECT_EQ(read_json_file(temp.file("none.json")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(read_json_file(temp.path()).status().code(), StatusCode::kIo);
  temp.write("a.json", "[1, 2]");
  const auto parsed = read_json_file(temp.file("a.json"));
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->size(), 2u);
}

}  // namespace
}  // namespace kvikk
