// Tokenizers of Hugging Face folders, of every kind, against the reference library's ids and texts.
#include "text/tokenizer_json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "text/detokenize_stream.h"

namespace kvikk {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<TokenId>;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string folder_of(const std::string& kind) {
  return std::string(KVIKK_TEST_DATA) + "/tokenizers/json/" + kind;
}

TokenizerFiles files_of(const std::string& kind) {
  TokenizerFiles files;
  files.folder = "model";
  files.tokenizer = read_file(folder_of(kind) + "/tokenizer.json");
  return files;
}

Tokenizer make(const TokenizerFiles& files) {
  Result<Tokenizer> tokenizer = tokenizer_from_json(files);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return std::move(*tokenizer);
}

std::string stream(const Tokenizer& tokenizer, const Ids& ids) {
  DetokenizeStream detokenizer(tokenizer, {.at_start_of_text = true});
  std::string text;
  for (const TokenId id : ids) text += detokenizer.push(id);
  return text + detokenizer.finish();
}

class TokenizerJsonTest : public testing::TestWithParam<std::string> {};

TEST_P(TokenizerJsonTest, Goldens) {
  const Tokenizer tokenizer = make(files_of(GetParam()));
  std::istringstream lines(read_file(folder_of(GetParam()) + "/goldens.jsonl"));
  std::string line;
  std::getline(lines, line);
  const Json around = Json::parse(line);
  Ids whole = around["prefix"];
  const Ids middle = tokenizer.encode("a", {});
  const Ids suffix = around["suffix"];
  whole.insert(whole.end(), middle.begin(), middle.end());
  whole.insert(whole.end(), suffix.begin(), suffix.end());
  EXPECT_EQ(tokenizer.encode("a", {.add_bos_eos = true}), whole);
  int cases = 0;
  for (; std::getline(lines, line); ++cases) {
    const Json golden = Json::parse(line);
    const std::string text = golden["text"];
    const Ids ids = golden["ids"];
    EXPECT_EQ(tokenizer.encode(text, {.parse_special = true}), ids) << text;
    if (golden.contains("plain")) {
      EXPECT_EQ(tokenizer.encode(text, {}), Ids(golden["plain"])) << text;
    }
    EXPECT_EQ(tokenizer.decode(ids, false), std::string(golden["decoded"])) << text;
    EXPECT_EQ(stream(tokenizer, ids), std::string(golden["decoded"])) << text;
  }
  EXPECT_GT(cases, 50);
}

// Much of one letter, of marks, of spaces...: no kind may need more than linear time (1 MB of any
// of these takes well under a second).
TEST_P(TokenizerJsonTest, LongRunsAreLinear) {
  const Tokenizer tokenizer = make(files_of(GetParam()));
  for (const std::string part : {"a", " ", "1", "\u4e2d", "\u0301", "ab c.", "'s", "<"}) {
    std::string text;
    while (text.size() < 200'000) text += part;
    const auto start = std::chrono::steady_clock::now();
    const Ids ids = tokenizer.encode(text, {});
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_LE(ids.size(), text.size() + 1) << part;
    // A quadratic step would take minutes; sanitizers and a busy machine take some seconds.
    EXPECT_LT(seconds.count(), 20) << part;
  }
}

TEST_P(TokenizerJsonTest, MalformedTextReadsAsReplacementCharacters) {
  const Tokenizer tokenizer = make(files_of(GetParam()));
  EXPECT_EQ(tokenizer.encode("a\xFF\xE4\xB8 b\xC3", {}),
            tokenizer.encode("a\uFFFD\uFFFD b\uFFFD", {}));
}

std::vector<std::string> kinds() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_of(""))) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerJsonTest, testing::ValuesIn(kinds()),
                         [](const auto& kind) {
                           std::string name = kind.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// The message of a tokenizer.json of `kind` after `change`.
std::string message_of(const std::string& kind, const std::function<void(Json*)>& change) {
  TokenizerFiles files = files_of(kind);
  Json json = Json::parse(files.tokenizer);
  change(&json);
  files.tokenizer = json.dump();
  const Result<Tokenizer> tokenizer = tokenizer_from_json(files);
  return tokenizer.ok() ? "" : tokenizer.status().message();
}

TEST(TokenizerJsonRefusalTest, NamesWhatIsNotKnownAndWhere) {
  const std::pair<const char*, std::function<void(Json*)>> cases[] = {
      {"model/tokenizer.json: model: the type 'WordLevel' is not supported",
       [](Json* j) { (*j)["model"]["type"] = "WordLevel"; }},
      {"model/tokenizer.json: normalizer: the type 'Odd' is not supported",
       [](Json* j) {
         (*j)["normalizer"] = {{"type", "Odd"}};
       }},
      {"model/tokenizer.json: normalizer.normalizers[1]: the type 'Odd'",
       [](Json* j) {
         (*j)["normalizer"] = {{"type", "Sequence"},
                               {"normalizers", {{{"type", "NFC"}}, {{"type", "Odd"}}}}};
       }},
      {"model/tokenizer.json: pre_tokenizer: the type 'UnicodeScripts'",
       [](Json* j) {
         (*j)["pre_tokenizer"] = {{"type", "UnicodeScripts"}};
       }},
      {"pre_tokenizer.pattern: regular expression '(?<n>a)\\1'",
       [](Json* j) {
         (*j)["pre_tokenizer"] = {{"type", "Split"},
                                  {"pattern", {{"Regex", "(?<n>a)\\1"}}},
                                  {"behavior", "Isolated"},
                                  {"invert", false}};
       }},
      {"decoder: the type 'CTC'",
       [](Json* j) {
         (*j)["decoder"] = {{"type", "CTC"}};
       }},
      {"post_processor: the type 'Odd'",
       [](Json* j) {
         (*j)["post_processor"] = {{"type", "Odd"}};
       }},
      {"model.dropout: the same text would have different tokens",
       [](Json* j) { (*j)["model"]["dropout"] = 0.1; }},
      {"model.vocab", [](Json* j) { (*j)["model"]["vocab"]["x"] = "y"; }},
      {"gives the id 5 to", [](Json* j) { (*j)["model"]["vocab"]["zzz"] = 5; }},
      {"joins a token that the vocabulary does not have",
       [](Json* j) {
         (*j)["model"]["merges"][0] = {"q", "zzzz"};
       }},
      {"in model.merges that is neither",
       [](Json* j) {
         (*j)["model"]["merges"][3] = {"a", "b", "c"};
       }},
      {"model/tokenizer.json: model is missing", [](Json* j) { j->erase("model"); }},
      {"decoder: an empty text to look for",
       [](Json* j) {
         (*j)["decoder"] = {{"type", "Metaspace"}, {"replacement", ""}};
       }},
      {"added_tokens[0].content is missing",
       [](Json* j) { (*j)["added_tokens"][0].erase("content"); }},
      {"the id 1 but elsewhere it is 0", [](Json* j) { (*j)["added_tokens"][0]["id"] = 1; }},
  };
  for (const auto& [part, change] : cases) {
    const std::string message = message_of("gpt2", change);
    EXPECT_NE(message.find(part), std::string::npos) << part << "\n" << message;
  }
}

// Each step multiplies what the ones before it made.
TEST(TokenizerJsonRefusalTest, StepsThatGrow) {
  const auto sequence = [](const char* list, const Json& step) {
    return Json{{"type", "Sequence"}, {list, Json(20, step)}};
  };
  const Json replace = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaa"}};
  const std::pair<const char*, Json> cases[] = {
      {"normalizer", sequence("normalizers", replace)},
      {"decoder", sequence("decoders", replace)},
      {"pre_tokenizer",
       sequence("pretokenizers", {{"type", "Metaspace"}, {"replacement", "    "}})},
  };
  for (const auto& pair : cases) {  // clang 14 cannot capture the names of a structured binding
    const std::string key = pair.first;
    const std::string message = message_of("gpt2", [&](Json* j) { (*j)[key] = pair.second; });
    EXPECT_NE(message.find("times as long"), std::string::npos) << key << ": " << message;
    EXPECT_NE(message.find(key), std::string::npos) << message;
  }
}

TEST(TokenizerJsonRefusalTest, NotJson) {
  TokenizerFiles files;
  files.folder = "model";
  files.tokenizer = "{\"model\": ";
  EXPECT_NE(tokenizer_from_json(files).status().message().find("model/tokenizer.json: is no JSON"),
            std::string::npos);
  files.tokenizer = std::string(100'000, '[');
  EXPECT_NE(tokenizer_from_json(files).status().message().find("nested more than 64 deep"),
            std::string::npos);
  files.tokenizer = "[]";
  EXPECT_FALSE(tokenizer_from_json(files).ok());
}

// The mark goes before a text whose first character is kept, however white its end is.
TEST(TokenizerJsonStepsTest, MarkOfTheFirstPiece) {
  TokenizerFiles files = files_of("no-bytes");
  Json json = Json::parse(files.tokenizer);
  json["pre_tokenizer"]["prepend_scheme"] = "first";
  for (const bool left : {false, true}) {
    json["normalizer"] = {{"type", "Strip"}, {"strip_left", left}, {"strip_right", true}};
    files.tokenizer = json.dump();
    const Tokenizer tokenizer = make(files);
    const TokenId mark = json["model"]["vocab"]["\u2581"];
    EXPECT_EQ(tokenizer.encode("\tq ", {}).front() == mark, !left);
    EXPECT_EQ(tokenizer.encode("\u4e2d", {}).front(), mark);
  }
}

TEST(TokenizerConfigTest, BeginAndEnd) {
  TokenizerFiles files = files_of("gpt2");
  EXPECT_FALSE(make(files).bos().has_value());
  files.tokenizer_config =
      R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": true})";
  files.generation_config = R"({"eos_token_id": [1, 300, 99999]})";
  const Tokenizer tokenizer = make(files);
  EXPECT_EQ(tokenizer.bos(), 0);
  EXPECT_EQ(tokenizer.eos(), 1);
  EXPECT_TRUE(tokenizer.adds_bos());
  EXPECT_FALSE(tokenizer.adds_eos());
  EXPECT_EQ(tokenizer.encode("", {.add_bos_eos = true}), Ids{0});
  EXPECT_TRUE(tokenizer.is_end_of_generation(300));
  EXPECT_FALSE(tokenizer.is_end_of_generation(301));
  // Llama's class adds BOS unless told not to.
  files.tokenizer_config = R"({"bos_token": "<s>", "tokenizer_class": "LlamaTokenizerFast"})";
  EXPECT_TRUE(make(files).adds_bos());
  files.tokenizer_config =
      R"({"bos_token": "<s>", "tokenizer_class": "LlamaTokenizerFast", "add_bos_token": false})";
  EXPECT_FALSE(make(files).adds_bos());
}

TEST(TokenizerConfigTest, AddedTokensOfTheConfigWin) {
  TokenizerFiles files = files_of("gpt2");
  const size_t size = make(files).size();
  files.tokenizer_config = R"({"added_tokens_decoder": {")" + std::to_string(size) +
                           R"(": {"content": "<tool>", "special": true}}, "eos_token": "The"})";
  const Tokenizer tokenizer = make(files);
  const auto tool = static_cast<TokenId>(size);
  EXPECT_EQ(tokenizer.find_token("<tool>"), tool);
  EXPECT_EQ(tokenizer.encode("<tool>", {.parse_special = true}), Ids{tool});
  EXPECT_GT(tokenizer.encode("<tool>", {}).size(), 1u);
  // A word of the vocabulary that is named as EOS is special, and no text makes it.
  ASSERT_TRUE(tokenizer.eos().has_value());
  EXPECT_TRUE(tokenizer.is_control(*tokenizer.eos()));
  EXPECT_GT(tokenizer.encode("The", {}).size(), 1u);
}

TEST(ChatTemplateTest, WhereItIs) {
  TokenizerFiles files;
  files.folder = "model";
  EXPECT_EQ(*chat_template_from_json(files), std::nullopt);
  files.tokenizer_config = R"({"chat_template": "one"})";
  EXPECT_EQ(*chat_template_from_json(files), "one");
  files.tokenizer_config = R"({"chat_template": [{"name": "tool_use", "template": "t"},)"
                           R"( {"name": "default", "template": "d"}]})";
  EXPECT_EQ(*chat_template_from_json(files), "d");
  files.tokenizer_config =
      R"({"chat_template": [{"name": "a", "template": "t"}, {"name": "b", "template": "d"}]})";
  EXPECT_NE(chat_template_from_json(files).status().message().find("named 'default' but: a b"),
            std::string::npos);
  files.chat_template_json = R"({"chat_template": "two"})";
  EXPECT_EQ(*chat_template_from_json(files), "two");
  files.chat_template = "three";
  EXPECT_EQ(*chat_template_from_json(files), "three");
}

}  // namespace
}  // namespace kvikk
