// config.json of every family: contradictions are refused with the key and both values; both ways
// of writing the same thing mean the same.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "models/registry.h"

namespace kvikk {
namespace {

using Json = nlohmann::json;

Json llama() {
  return {{"model_type", "llama"},    {"vocab_size", 320},      {"hidden_size", 128},
          {"intermediate_size", 192}, {"num_hidden_layers", 3}, {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"hidden_act", "silu"},   {"max_position_embeddings", 2048},
          {"rms_norm_eps", 1e-5},     {"rope_theta", 10000.0}};
}

Result<ModelConfig> read(const Json& json) {
  TRY_ASSIGN(const ConfigKeys keys, ConfigKeys::parse("config.json", json.dump()));
  return read_model_config(keys);
}

Json with(Json json, const char* key, const Json& value) {
  json[key] = value;
  return json;
}

// The message names all of `parts`.
void expect_refused(const Json& json, StatusCode code, std::initializer_list<const char*> parts) {
  const auto config = read(json);
  ASSERT_FALSE(config.ok()) << json.dump();
  EXPECT_EQ(config.status().code(), code) << config.status().message();
  for (const char* part : parts) {
    EXPECT_NE(config.status().message().find(part), std::string::npos)
        << "no '" << part << "' in: " << config.status().message();
  }
}

TEST(Config, ASoundOneIsRead) {
  const auto config = read(llama());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->head_dim, 32u);
  EXPECT_EQ(config->kv_heads, 2u);
  EXPECT_EQ(config->rotary, 32u);
  EXPECT_FLOAT_EQ(config->norm_epsilon, 1e-5f);
  EXPECT_EQ(config->rope_style, RopeStyle::kHalves);
}

// The configuration that Gemma 3 4B was published with: what is as usual is left out.
TEST(Config, TheTextPartOfALargerModelIsRead) {
  const Json text = {{"model_type", "gemma3_text"},
                     {"hidden_size", 2560},
                     {"intermediate_size", 10240},
                     {"num_hidden_layers", 34},
                     {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                     {"sliding_window", 1024}};
  const Json json = {
      {"model_type", "gemma3"}, {"text_config", text}, {"vision_config", {{"a", 1}}}};
  const auto config = read(json);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->architecture, "gemma3_text");
  EXPECT_EQ(config->vocabulary, 262208u);
  EXPECT_EQ(config->heads, 8u);
  EXPECT_EQ(config->kv_heads, 4u);
  EXPECT_EQ(config->head_dim, 256u);
  EXPECT_EQ(config->tied, Presence::kYes);
  EXPECT_FLOAT_EQ(config->attention_scale, 1.0f / 16.0f);
  EXPECT_FLOAT_EQ(config->rope.base, 1000000.0f);
  EXPECT_FLOAT_EQ(config->rope_sliding.base, 10000.0f);
  EXPECT_TRUE(config->layer[0].sliding);
  EXPECT_FALSE(config->layer[5].sliding);

  // A language model by itself must say all.
  expect_refused(text, StatusCode::kDamaged, {"vocab_size", "missing"});
  expect_refused({{"model_type", "gemma3"}, {"text_config", {{"model_type", "gemma3n_text"}}}},
                 StatusCode::kUnsupported, {"text_config", "gemma3n_text"});
  Json wide = llama();
  wide["num_attention_heads"] = 6;
  expect_refused({{"model_type", "llava"}, {"text_config", wide}}, StatusCode::kDamaged,
                 {"text_config: hidden_size is 128"});
}

TEST(Config, ContradictionsNameBothValues) {
  expect_refused(with(llama(), "num_key_value_heads", 3), StatusCode::kDamaged,
                 {"num_attention_heads is 4", "num_key_value_heads is 3"});
  expect_refused(with(llama(), "num_attention_heads", 6), StatusCode::kDamaged,
                 {"hidden_size is 128", "num_attention_heads is 6"});
  expect_refused(with(llama(), "head_dim", 1024), StatusCode::kDamaged,
                 {"head_dim is 1024", "up to 576"});
  expect_refused(with(llama(), "hidden_size", 0), StatusCode::kDamaged, {"hidden_size is 0"});
  expect_refused(with(llama(), "hidden_size", -128), StatusCode::kDamaged, {"hidden_size is -128"});
  expect_refused(with(llama(), "hidden_size", "128"), StatusCode::kDamaged, {"hidden_size"});
  expect_refused(with(llama(), "num_hidden_layers", 1 << 20), StatusCode::kDamaged,
                 {"num_hidden_layers is 1048576", "1024"});
  expect_refused(with(llama(), "rms_norm_eps", 0), StatusCode::kDamaged, {"rms_norm_eps is 0"});
  expect_refused(with(llama(), "partial_rotary_factor", 1.5), StatusCode::kDamaged,
                 {"partial_rotary_factor is 1.5"});
  expect_refused(with(llama(), "partial_rotary_factor", 0.1), StatusCode::kDamaged,
                 {"3 rotating dimensions"});
}

TEST(Config, MissingKeysAreNamed) {
  for (const char* key : {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
                          "rms_norm_eps", "max_position_embeddings", "intermediate_size"}) {
    Json json = llama();
    json.erase(key);
    expect_refused(json, StatusCode::kDamaged, {key, "missing"});
    expect_refused(with(llama(), key, nullptr), StatusCode::kDamaged, {key, "missing"});
  }
}

TEST(Config, UnknownChoicesAreListed) {
  expect_refused(with(llama(), "hidden_act", "mish"), StatusCode::kUnsupported,
                 {"hidden_act 'mish'", "silu", "gelu_pytorch_tanh"});
  expect_refused(with(llama(), "rope_scaling", {{"rope_type", "spiral"}, {"factor", 2.0}}),
                 StatusCode::kUnsupported, {"rope_scaling.rope_type 'spiral'", "yarn"});
  expect_refused(with(llama(), "quantization_config", {{"quant_method", "awq"}}),
                 StatusCode::kUnsupported, {"quant_method 'awq'", "fp8"});
  Json mistral = with(llama(), "model_type", "mistral");
  mistral["layer_types"] = {"full_attention", "spiral_attention", "full_attention"};
  expect_refused(mistral, StatusCode::kUnsupported, {"layer 1", "'spiral_attention'"});
}

// None of these may be taken for a key that is not there.
TEST(Config, ValuesOfAnotherKindAreRefused) {
  for (const Json& value : {Json("x"), Json(-1), Json::array()}) {
    for (const char* key : {"rope_parameters", "rope_scaling", "quantization_config"}) {
      expect_refused(with(llama(), key, value), StatusCode::kDamaged, {key, "an object"});
    }
    expect_refused(with(llama(), "rope_parameters", {{"full_attention", value}}),
                   StatusCode::kDamaged, {"rope_parameters.full_attention", "an object"});
  }
  expect_refused(with(llama(), "use_bidirectional_attention", true), StatusCode::kUnsupported,
                 {"use_bidirectional_attention is true"});
  expect_refused(with(llama(), "use_bidirectional_attention", "yes"), StatusCode::kDamaged,
                 {"use_bidirectional_attention", "true or false"});
  const Json gemma = with(with(llama(), "model_type", "gemma"), "head_dim", 32);
  ASSERT_TRUE(read(with(gemma, "hidden_activation", nullptr)).ok());
  for (const Json& value : {Json("relu"), Json("silu"), Json(3)}) {
    expect_refused(with(gemma, "hidden_activation", value), StatusCode::kDamaged,
                   {"hidden_activation", "must be"});
  }
}

TEST(Config, ListsHaveAnEntryALayer) {
  Json mistral = with(llama(), "model_type", "mistral");
  mistral["layer_types"] = {"full_attention"};
  expect_refused(mistral, StatusCode::kDamaged, {"layer_types", "list of 1", "3"});
  mistral["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  expect_refused(mistral, StatusCode::kDamaged, {"sliding_window", "missing"});
  mistral["sliding_window"] = 48;
  const auto config = read(mistral);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_TRUE(config->layer[1].sliding);
  EXPECT_FALSE(config->layer[2].sliding);
  EXPECT_EQ(config->window, 48u);
  Json smollm = with(llama(), "model_type", "smollm3");
  smollm["no_rope_layers"] = {1, 0};
  expect_refused(smollm, StatusCode::kDamaged, {"no_rope_layers", "list of 2", "3"});
}

TEST(Config, RopeIsReadInBothStyles) {
  const Json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 64}};
  Json old_style = with(llama(), "rope_scaling", scaling);
  old_style["rope_theta"] = 500000.0;
  Json new_style = llama();
  new_style.erase("rope_theta");
  new_style["rope_parameters"] = scaling;
  new_style["rope_parameters"]["rope_theta"] = 500000.0;
  for (const Json& json : {old_style, new_style}) {
    const auto config = read(json);
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->rope.scaling, RopeConfig::Scaling::kLlama3);
    EXPECT_EQ(config->rope.base, 500000.0f);
    EXPECT_EQ(config->rope.factor, 8.0f);
    EXPECT_EQ(config->rope.original_context, 64.0f);
  }
  expect_refused(with(llama(), "rope_scaling", {{"rope_type", "yarn"}}), StatusCode::kDamaged,
                 {"rope_scaling.factor", "missing"});
  expect_refused(with(llama(), "rope_scaling", {{"rope_type", "linear"}, {"factor", -1}}),
                 StatusCode::kDamaged, {"rope_scaling.factor is -1"});
}

TEST(Config, LongFactorsAreOnePerPair) {
  Json phi = with(llama(), "model_type", "phi3");
  phi["rope_scaling"] = {{"type", "longrope"}, {"short_factor", {1.0}}, {"long_factor", {1.0}}};
  expect_refused(phi, StatusCode::kDamaged, {"short_factor", "list of 1", "16"});
}

TEST(Config, NotJson) {
  for (const char* text : {"", "{", "[1]", "null", "{\"model_type\": 3}"}) {
    EXPECT_FALSE(ConfigKeys::parse("config.json", text).ok()) << text;
  }
  const std::string deep(100000, '[');
  EXPECT_FALSE(ConfigKeys::parse("config.json", deep).ok());
  const std::string large = "{\"model_type\": \"" + std::string(5 << 20, 'a') + "\"}";
  EXPECT_EQ(ConfigKeys::parse("config.json", large).status().code(), StatusCode::kExhausted);
}

}  // namespace
}  // namespace kvikk
