// What a model's files must hold: a tensor that is missing, of another shape or unknown is refused
// by name; what the documents list as not needed is let pass.

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "models/golden_cases.h"
#include "models/model.h"
#include "weights/safetensors.h"

namespace kvikk {
namespace {

using Json = nlohmann::ordered_json;

// A committed checkpoint that a test may bend.
class Checkpoint {
 public:
  explicit Checkpoint(const std::string& name) {
    const std::string folder = std::string(KVIKK_TEST_DATA) + "/models/" + name;
    config = read_json(folder + "/config.json");
    std::ifstream file(folder + "/model.safetensors", std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    header = Json::parse(bytes.substr(sizeof length, length));
    data = bytes.substr(sizeof length + length);
  }

  // A tensor of zeros at the end.
  void add(const std::string& name, size_t floats) {
    header[name] = {{"dtype", "F32"},
                    {"shape", {floats}},
                    {"data_offsets", {data.size(), data.size() + floats * sizeof(float)}}};
    data.append(floats * sizeof(float), '\0');
  }
  void rename(const std::string& from, const std::string& to) {
    header[to] = header[from];
    header.erase(from);
  }

  Status check() {
    const std::string text = header.dump();
    const uint64_t length = text.size();
    std::string bytes(sizeof length, '\0');
    std::memcpy(bytes.data(), &length, sizeof length);
    bytes += text + data;
    const auto* start = reinterpret_cast<const uint8_t*>(bytes.data());
    TRY_ASSIGN(const SafetensorsFolder folder,
               SafetensorsFolder::parse("folder", {start, bytes.size()}));
    TRY_ASSIGN(const ConfigKeys keys, ConfigKeys::parse("config.json", config.dump()));
    TRY_ASSIGN(ModelConfig read, read_model_config(keys));
    return check_weights(folder, read);
  }

  nlohmann::json config;
  Json header;
  std::string data;
};

void expect_refused(Checkpoint& checkpoint, std::initializer_list<const char*> parts) {
  const Status status = checkpoint.check();
  ASSERT_FALSE(status.ok());
  for (const char* part : parts) {
    EXPECT_NE(status.message().find(part), std::string::npos)
        << "no '" << part << "' in: " << status.message();
  }
}

TEST(Load, ASoundOnePasses) {
  Checkpoint checkpoint("seed_oss");
  const Status status = checkpoint.check();
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Load, AMissingTensorIsNamed) {
  Checkpoint norm("seed_oss");
  norm.rename("model.norm.weight", "model.mron.weight");
  expect_refused(norm, {"'model.norm.weight' of shape [32] is missing"});
  Checkpoint layers("seed_oss");
  layers.config["num_hidden_layers"] = 3;
  expect_refused(layers, {"'model.layers.2.self_attn.o_proj.weight' is missing", "3 layers"});
  Checkpoint bias("cohere");
  bias.config["attention_bias"] = true;
  expect_refused(bias, {"'model.layers.0.self_attn.q_proj.bias'", "missing"});
}

TEST(Load, AnotherShapeIsNamedWithBoth) {
  Checkpoint mlp("seed_oss");
  mlp.config["intermediate_size"] = 64;
  expect_refused(mlp, {"'model.layers.0.mlp.gate_proj.weight' has shape [32 x 48]", "[32 x 64]"});
  Checkpoint vocabulary("seed_oss");
  vocabulary.config["vocab_size"] = 100;
  expect_refused(vocabulary, {"'model.embed_tokens.weight' has shape [32 x 64]", "[32 x 100]"});
  Checkpoint fused("falcon-new");
  fused.config["num_kv_heads"] = 4;
  expect_refused(fused, {"query_key_value.weight' has shape"});
}

TEST(Load, AnUnknownTensorIsRefused) {
  Checkpoint extra("seed_oss");
  extra.add("model.layers.0.self_attn.sinks", 2);
  expect_refused(extra, {"'model.layers.0.self_attn.sinks' is not part"});
  Checkpoint bias("seed_oss");
  bias.config["attention_bias"] = false;
  expect_refused(bias, {"_proj.bias' is not part"});
}

TEST(Load, WhatNoForwardPassNeedsMayBeThere) {
  Checkpoint neox("gpt_neox");
  neox.add("gpt_neox.layers.0.attention.rotary_emb.inv_freq", 4);
  neox.add("gpt_neox.layers.0.attention.masked_bias", 1);
  EXPECT_TRUE(neox.check().ok()) << neox.check().message();
  Checkpoint llama("seed_oss");
  llama.add("model.layers.0.self_attn.rotary_emb.inv_freq", 16);
  EXPECT_TRUE(llama.check().ok()) << llama.check().message();
}

TEST(Load, NamesWithoutTheOutermostModule) {
  Checkpoint gpt2("gpt2");
  std::vector<std::string> names;
  for (const auto& [name, entry] : gpt2.header.items()) {
    if (name.starts_with("transformer.")) names.push_back(name);
  }
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names) gpt2.rename(name, name.substr(name.find('.') + 1));
  EXPECT_TRUE(gpt2.check().ok()) << gpt2.check().message();
}

}  // namespace
}  // namespace kvikk
