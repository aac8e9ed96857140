// Hostile templates: each ends in an error of a named limit, soon, and takes nothing down with it.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "text/template.h"

namespace kvikk {
namespace {

using Json = nlohmann::ordered_json;

Status run(const std::string& source, const TemplateOptions& options = {},
           const Json& variables = Json::object()) {
  Result<Template> parsed = Template::parse(source);
  if (!parsed.ok()) return parsed.status();
  Result<std::string> text = parsed->render(variables, options);
  return text.ok() ? ok_status() : text.status();
}

std::string repeat(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

void expect_limit(const std::string& source, const std::string& limit,
                  const TemplateOptions& options = {}) {
  const Status status = run(source, options);
  EXPECT_EQ(status.code(), StatusCode::kExhausted) << source.substr(0, 200) << status.message();
  EXPECT_NE(status.message().find(limit), std::string::npos) << status.message();
}

TEST(TemplateLimits, NoTemplateRunsForever) {
  const auto start = std::chrono::steady_clock::now();
  expect_limit("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
               "steps_max");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 20) << "under a second on an idle machine and without sanitizers";
}

// Each of these does much in one step: the price of the step has to follow.
TEST(TemplateLimits, OneStepPaysForItsWork) {
  TemplateOptions options;
  options.limits.steps_max = 300'000;
  const std::string long_text = "{% set s = 'x' * 1000000 %}{% set e = 'é' * 1000000 %}";
  const std::string long_list = "{% set l = range(100000)|list %}";
  for (const char* body : {"s + s",
                           "s in e",
                           "s == 'x' * 1000000",
                           "e[500000]",
                           "e[5:]",
                           "s|upper",
                           "s.isalpha()",
                           "s.strip('x')",
                           "s|wordcount",
                           "s|length and s.split('y')",
                           "s|int",
                           "s|float",
                           "[s]|string",
                           "s|tojson",
                           "s|e",
                           "s.find('y')",
                           "s.rfind('y')",
                           "s.replace('x', 'y')",
                           "'%s' % s",
                           "'{}'.format(s)",
                           "{s: 1}|length",
                           "s|urlencode",
                           "s.splitlines()",
                           "s|title",
                           "s is lower",
                           "s|indent",
                           "s.partition('y')",
                           "s.count('y')",
                           "s.center(1000001)"}) {
    expect_limit(long_text + "{% for i in range(100000) %}{% set y = " + body + " %}{% endfor %}",
                 "steps_max", options);
  }
  for (const char* body :
       {"l + l", "l[1:]", "l|sort", "l|min", "l|sum", "99999 in l", "l == l + [1]", "l|list",
        "l|reverse|list", "l|join", "l.index(99999)", "l|map('string')|list", "l|unique|list",
        "l|batch(2)|list", "l|tojson", "l|string", "dict(l|batch(2))", "l|groupby('real')"}) {
    expect_limit(long_list + "{% for i in range(100000) %}{% set y = " + body + " %}{% endfor %}",
                 "steps_max", options);
  }
}

TEST(TemplateLimits, TextIsBounded) {
  for (const char* expression :
       {"'a' * 10**9", "('a' * 10**7) * 10", "'x'|center(10**9)", "'x\ny'|indent(10**9)",
        "'%1000000000d' % 1", "'{:1000000000}'.format(1)", "'%*d' % (10**9, 1)", "'a'.zfill(10**9)",
        "'a'.ljust(10**12)", "'\\t'.expandtabs(2**62)",
        "('a' * 1000000).replace('', 'x' * 1000000)", "('x' * 100000).join('a' * 100000)"}) {
    expect_limit(std::string("{{ ") + expression + " }}", "string_bytes_max");
  }
  expect_limit("{% for i in range(1000) %}{{ 'x' * 1000000 }}{% endfor %}", "string_bytes_max");
  TemplateOptions options;
  options.limits.output_bytes_max = 100;
  expect_limit("{{ 'x' * 101 }}", "output_bytes_max", options);
  EXPECT_TRUE(run("{{ 'x' * 100 }}", options).ok());
}

TEST(TemplateLimits, ListsAndMemoryAreBounded) {
  expect_limit("{{ [1] * 10**9 }}", "list_items_max");
  expect_limit("{{ [1, 2]|batch(10**18, 'x')|list }}", "list_items_max");
  expect_limit(
      "{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = n.l + n.l %}{% endfor %}",
      "list_items_max");
  TemplateOptions options;
  options.limits.memory_bytes_max = 1 << 20;
  expect_limit(
      "{% set n = namespace(l=[]) %}{% for i in range(100) %}{% set n.l = n.l + ['x' * 100000 ~ i] "
      "%}{% endfor %}",
      "memory_bytes_max", options);
  // What is dropped does not count: the same text again and again fits.
  EXPECT_TRUE(
      run("{% for i in range(100) %}{% set t = 'x' * 100000 ~ i %}{% endfor %}", options).ok());
}

TEST(TemplateLimits, DepthIsBounded) {
  expect_limit("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "depth_max");
  expect_limit("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", "depth_max");
  expect_limit("{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}",
               "depth_max");
  expect_limit(
      "{% set n = namespace(i=[1]) %}{% for i in range(9999) %}{% set n.i = n.i|map('string') %}{% "
      "endfor %}{{ n.i|list }}",
      "depth_max");
  const std::string nested =
      "{% set n = namespace(l=(1,)) %}{% for i in range(9999) %}{% set n.l = (n.l,) %}{% endfor %}";
  for (const char* use : {"n.l", "n.l|tojson", "{n.l: 1}", "n.l == (n.l,)", "n.l < (n.l,)"}) {
    expect_limit(nested + "{{ " + use + " }}", "_depth_max");
  }
  EXPECT_TRUE(run(nested).ok()) << "only looking at it is too deep, not having it";
  for (const char* part : {"[", "(", "{'a':", "not ", "- ", "a.b(", "a[", "'a'|e("}) {
    EXPECT_FALSE(run("{{ " + repeat(part, 100000)).ok()) << part;
  }
  for (const char* part : {".b", "|e", "()", "[0]", "+1", " or 1", " if 1", "**1"}) {
    EXPECT_EQ(run("{{ 1" + repeat(part, 100000) + " }}").code(), StatusCode::kExhausted) << part;
  }
  EXPECT_EQ(run(repeat("{% if 1 %}", 100000)).code(), StatusCode::kExhausted);
  EXPECT_EQ(run(repeat("x", 2'000'000)).code(), StatusCode::kExhausted);
  EXPECT_TRUE(run(repeat("{% if 1 %}", 90) + repeat("{% endif %}", 90)).ok());
  EXPECT_TRUE(run("{{ " + repeat("(", 90) + "1" + repeat(")", 90) + " }}").ok());
  EXPECT_TRUE(run("{{ 1" + repeat(" + 1", 400) + " }}").ok());
  EXPECT_TRUE(run("{{ 1" + repeat(" ~ 1", 50000) + " }}").ok());
}

TEST(TemplateLimits, DeepVariablesAreRefused) {
  Json deep = 1;
  for (int i = 0; i < 10000; ++i) deep = Json::array({std::move(deep)});
  Json variables;
  variables["a"] = std::move(deep);
  EXPECT_EQ(run("x", {}, variables).code(), StatusCode::kExhausted);
}

// Things that hold each other are set free (the address sanitizer would say so) and print bounded.
TEST(TemplateLimits, CyclesAreHarmless) {
  EXPECT_TRUE(run("{% set n = namespace() %}{% set n.n = n %}{{ n == n }}").ok());
  expect_limit("{% set n = namespace() %}{% set n.n = n %}{{ n }}", "value_depth_max");
  EXPECT_TRUE(
      run("{% macro m() %}{% macro k() %}{{ k }}{% endmacro %}{{ k() }}{% endmacro %}{{ m() }}")
          .ok());
  EXPECT_TRUE(run("{% set n = namespace() %}{% for i in [1, 2] %}{% set n.l = loop %}"
                  "{{ loop.changed(loop, n) }}{% endfor %}")
                  .ok());
  EXPECT_TRUE(run("{% set n = namespace(p=none) %}{% for i in range(50000) %}"
                  "{% set n.p = namespace(p=n.p) %}{% endfor %}")
                  .ok());
}

TEST(TemplateLimits, TwistedBytesAreHarmless) {
  const std::string nul(1, '\0');
  EXPECT_TRUE(run("a" + nul + "{{ '" + nul + "' }}").ok());
  for (const std::string& source :
       {"{{ " + nul + " }}", std::string("{{ 'a"), std::string("{% set x %}"),
        std::string("{{ x }"), std::string("{{ \xFF }}"), std::string("{{ '\\x4' }}"),
        std::string("{{ '\\ud800' }}"), std::string("{# a"), std::string("{% raw %}a"),
        std::string("{{ 1e"), std::string("{%")}) {
    EXPECT_FALSE(run(source).ok()) << source;
  }
  EXPECT_TRUE(run("\xFF\xFE{{ '\xC3' }}").ok());
}

}  // namespace
}  // namespace kvikk
