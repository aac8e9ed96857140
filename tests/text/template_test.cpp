// Chat templates against Jinja2: published templates with fixed and with random conversations, and
// some thousand snippets of the language. tests/data/templates/make_expected.py made the
// expectations (goldens.jsonl is older than it).
#include "text/template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

namespace kvikk {
namespace {

using Json = nlohmann::ordered_json;

const std::string kFolder = std::string(KVIKK_TEST_DATA) + "/templates/";

std::string read_file(const std::string& name) {
  std::ifstream file(kFolder + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<Json> read_lines(const std::string& name) {
  std::vector<Json> rows;
  std::istringstream lines(read_file(name));
  for (std::string line; std::getline(lines, line);) rows.push_back(Json::parse(line));
  return rows;
}

Template parse_file(const std::string& name) {
  Result<Template> parsed = Template::parse(read_file(name));
  EXPECT_TRUE(parsed.ok()) << name << ": " << parsed.status().message();
  return std::move(*parsed);
}

// `expected` has "text" or "error".
void check(const Result<std::string>& got, const Json& expected, const std::string& what) {
  if (expected.contains("error")) {
    EXPECT_FALSE(got.ok()) << what << " must be refused: " << expected["error"] << "\ngot " << *got;
    return;
  }
  ASSERT_TRUE(got.ok()) << what << ": " << got.status().message();
  EXPECT_EQ(*got, expected["text"].get<std::string>()) << what;
}

Result<std::string> render(const std::string& source, const Json& variables = Json::object(),
                           const TemplateOptions& options = {}) {
  Result<Template> parsed = Template::parse(source);
  if (!parsed.ok()) return parsed.status();
  return parsed->render(variables, options);
}

TEST(TemplateGoldens, RenderByteForByte) {
  std::map<std::string, Template> templates;
  const std::vector<Json> rows = read_lines("goldens.jsonl");
  ASSERT_GT(rows.size(), 200u);
  for (const Json& row : rows) {
    const std::string name = row["template"];
    if (templates.find(name) == templates.end()) templates.emplace(name, parse_file(name));
    Json variables = row;
    for (const char* key : {"template", "case", "expected", "error", "now"}) variables.erase(key);
    TemplateOptions options;
    options.now = row["now"];
    Json expected;
    if (row.contains("error")) {
      expected["error"] = row["error"];
    } else {
      expected["text"] = row["expected"];
    }
    check(templates.at(name).render(variables, options), expected,
          name + " " + row["case"].get<std::string>());
  }
}

TEST(TemplateConversations, RenderByteForByte) {
  const std::vector<Json> rows = read_lines("conversations.jsonl");
  ASSERT_GE(rows.size(), 8u);
  for (const Json& row : rows) {
    TemplateOptions options;
    options.now = row["now"];
    for (const auto& [name, expected] : row["templates"].items()) {
      check(parse_file(name).render(row["variables"], options), expected, name);
    }
  }
}

TEST(TemplateLanguage, AgreesWithJinja2) {
  const std::vector<Json> rows = read_lines("language.jsonl");
  ASSERT_GT(rows.size(), 1500u);
  TemplateOptions options;
  options.now = rows[0]["now"];
  for (size_t i = 1; i < rows.size(); ++i) {
    const std::string source = rows[i]["source"];
    check(render(source, rows[0]["variables"], options), rows[i], source);
  }
}

TEST(TemplateVariables, HaveTheReferenceLibrarysDefaults) {
  EXPECT_EQ(*render("{{ tools }} {{ documents }} {{ add_generation_prompt }} {{ messages }}|"),
            "None None False |");
  EXPECT_EQ(*render("{{ tools }}{{ add_generation_prompt }}",
                    Json::parse(R"({"tools":[1],"add_generation_prompt":true})")),
            "[1]True");
  EXPECT_EQ(*render("{{ range }}", Json::parse(R"({"range": 5})")), "5");
}

TEST(TemplateVariables, KeepNumbersAndTheOrderOfKeys) {
  const Json variables = Json::parse(
      R"({"v": {"z": 18446744073709551615, "a": -9223372036854775808, "m": [1.0, 1e16, 1e-7]}})");
  EXPECT_EQ(*render("{{ v|tojson }}", variables),
            R"({"z": 18446744073709551615, "a": -9223372036854775808, "m": [1.0, 1e+16, 1e-07]})");
  EXPECT_FALSE(render("x", Json::array()).ok());
}

TEST(TemplateVariables, KeepBytesThatAreNoUtf8) {
  Json variables;
  variables["s"] = std::string("a\xFF\xC3\xA9\xE2\x82") + std::string(1, '\0') + "b";
  EXPECT_EQ(*render("{{ s }}", variables), variables["s"].get<std::string>());
  EXPECT_EQ(*render("{{ s|length }} {{ s[2] }}", variables), "7 \xC3\xA9");
  EXPECT_EQ(*render("{{ s[::-1] }}", variables),
            std::string("b") + std::string(1, '\0') + "\x82\xE2\xC3\xA9\xFF" + "a");
  EXPECT_EQ(*render("{{ s|upper|lower }}", variables), variables["s"].get<std::string>());
}

TEST(TemplateTime, IsTheOneGivenOrTheClock) {
  TemplateOptions options;
  options.now = "2024-02-29T23:59:58.000123";
  EXPECT_EQ(
      *render("{{ strftime_now('%Y-%m-%d %H:%M:%S %f %a %j %-d') }}", Json::object(), options),
      "2024-02-29 23:59:58 000123 Thu 060 29");
  options.now = "2023-02-29T00:00:00";
  EXPECT_FALSE(render("{{ strftime_now('%Y') }}", Json::object(), options).ok());
  options.now = "yesterday";
  EXPECT_FALSE(render("{{ strftime_now('%Y') }}", Json::object(), options).ok());
  const std::string year = *render("{{ strftime_now('%Y') }}");
  EXPECT_GE(year, "2024");
  EXPECT_EQ(year.size(), 4u);
}

TEST(TemplateErrors, SayLineAndWhy) {
  const auto message = [](const std::string& source) {
    const Result<std::string> got = render(source);
    return got.ok() ? "rendered " + *got : got.status().message();
  };
  EXPECT_EQ(message("a\nb\n{{ x.y }}"), "line 3: 'x' is undefined");
  EXPECT_EQ(message("{# \n\n #}\n{{ {'a': 1}.b.c }}"),
            "line 4: 'dict object' has no attribute 'b'");
  EXPECT_EQ(message("\n{% if true %}\n{{ raise_exception('No!') }}{% endif %}"), "line 3: No!");
  EXPECT_EQ(message("{% macro m() %}\n\n{{ 1/0 }}{% endmacro %}\n{{ m() }}"),
            "line 3: division by zero");
  EXPECT_EQ(message("\n{% if x %}"),
            "line 2: unexpected end of template; the block 'if' is not closed");
  EXPECT_EQ(message("\n\n{{ 'a' ! }}"), "line 3: unexpected char '!'");
  EXPECT_EQ(message("{{ 5|foo }}"), "line 1: no filter named 'foo'");
  EXPECT_EQ(message("{{ [].append(1) }}"),
            "line 1: access to attribute 'append' of 'list' object is unsafe");
  EXPECT_EQ(render("{% include 'x' %}").status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(render("{{ 1 + 'a' }}").status().code(), StatusCode::kInvalidArgument);
}

TEST(TemplateThreads, ShareOneTemplate) {
  const Template shared = parse_file("Qwen-Qwen3-0.6B.jinja");
  const Json variables = Json::parse(
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})");
  const std::string expected = *shared.render(variables);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) EXPECT_EQ(*shared.render(variables), expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace kvikk
