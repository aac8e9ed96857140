// Vectors of texts: those of the original implementations, whatever shares a step with them.

#include "engine/embedder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "models/golden_cases.h"
#include "weights/temp_folder.h"
#include "weights/tensor_rows.h"

namespace kvikk {
namespace {

const std::string kModels = std::string(KVIKK_TEST_DATA) + "/models/";

std::unique_ptr<Embedder> load(const std::string& path, const EmbedderOptions& options) {
  auto file = ModelFile::open(path);
  EXPECT_TRUE(file.ok()) << file.status().message();
  auto embedder = Embedder::load(std::move(*file), options);
  EXPECT_TRUE(embedder.ok()) << embedder.status().message();
  return embedder.ok() ? std::move(*embedder) : nullptr;
}

std::vector<float> embed(Embedder& embedder, const std::vector<std::vector<TokenId>>& texts) {
  std::vector<float> out(texts.size() * embedder.dimensions());
  const Status status = embedder.embed(texts, out.data());
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

bool same_bytes(const float* a, const float* b, size_t n) {
  return std::memcmp(a, b, n * sizeof(float)) == 0;
}

// A decoder that has a tokenizer: StableLM's tiny case with the vocabulary of BERT's.
class DecoderFolder {
 public:
  DecoderFolder() {
    for (const char* name : {"config.json", "model.safetensors"}) {
      std::filesystem::create_symlink(kModels + "stablelm/" + name, folder_.file(name));
    }
    std::filesystem::create_symlink(kModels + "bert/tokenizer.json",
                                    folder_.file("tokenizer.json"));
  }
  const std::string& path() const { return folder_.path(); }
  const TempFolder& folder() const { return folder_; }

 private:
  TempFolder folder_;
};

TEST(Embedder, EncoderGivesTheOriginalsVectors) {
  const nlohmann::json want = read_json(kModels + "bert/encoder.json");
  const std::vector<float> expected = read_floats(kModels + "bert/expected.f32");
  const size_t d = want["hidden"];
  const float* vector = expected.data() + want["tokens"].size() * d;
  for (const char* file : {"bert", "bert/model.gguf"}) {
    for (size_t pooling = 0; pooling < 3; ++pooling) {
      EmbedderOptions options;
      options.exact = true;
      options.pooling = pooling_name(static_cast<Pooling>(pooling));
      const auto embedder = load(kModels + file, options);
      ASSERT_NE(embedder, nullptr);
      std::vector<std::vector<TokenId>> texts;
      for (const auto& text : want["texts"]) {
        const auto tokens = embedder->encode(text["text"].get<std::string>());
        ASSERT_TRUE(tokens.ok()) << tokens.status().message();
        EXPECT_EQ(*tokens, text["ids"].get<std::vector<TokenId>>()) << file;
        texts.push_back(*tokens);
      }
      const std::vector<float> got = embed(*embedder, texts);
      for (size_t i = 0; i < texts.size(); ++i) {
        for (size_t k = 0; k < d; ++k) {
          EXPECT_NEAR(got[i * d + k], vector[(i * 3 + pooling) * d + k], 2e-5) << file;
        }
      }
    }
  }
}

TEST(Embedder, DecoderGivesTheStateBehindTheOriginalsLogits) {
  const DecoderFolder decoder;
  const Golden want = read_golden({"stablelm", kModels + "stablelm", "", "expected.f32", false});
  EmbedderOptions options;
  options.exact = options.raw = true;
  const auto embedder = load(decoder.path(), options);
  ASSERT_NE(embedder, nullptr);
  EXPECT_EQ(embedder->pooling(), Pooling::kLast);
  const std::vector<float> state = embed(*embedder, {want.long_prompt});
  const auto file = ModelFile::open(decoder.path());
  const StoredTensor* head = file->tensors->find_tensor("lm_head.weight");
  ASSERT_NE(head, nullptr);
  const float* logits = want.logits.data() + want.logits.size() - want.vocabulary;
  std::vector<float> row(embedder->dimensions());
  for (size_t token = 0; token < want.vocabulary; ++token) {
    read_row(*head, token, row.data());
    double sum = 0;
    for (size_t i = 0; i < row.size(); ++i) {
      sum += static_cast<double>(row[i]) * static_cast<double>(state[i]);
    }
    EXPECT_NEAR(sum, static_cast<double>(logits[token]), 6e-4);
  }
}

// Texts of all lengths: alone and together, where a decoder's are cut by the end of a step.
TEST(Embedder, NeighboursAreInvisible) {
  const DecoderFolder decoder;
  for (const std::string& path : {kModels + "bert", decoder.path()}) {
    for (const char* pooling : {"mean", "cls", "last"}) {
      EmbedderOptions options;
      options.pooling = pooling;
      const auto embedder = load(path, options);
      ASSERT_NE(embedder, nullptr);
      std::vector<std::vector<TokenId>> texts;
      for (size_t i = 0; i < 36; ++i) {
        const size_t length = 1 + i * 67 % std::min<size_t>(embedder->context(), 400);
        texts.emplace_back();
        for (size_t t = 0; t < length; ++t) {
          texts.back().push_back(static_cast<TokenId>((i * 13 + t * t) % 60));
        }
      }
      const std::vector<float> together = embed(*embedder, texts);
      const size_t d = embedder->dimensions();
      for (size_t i = 0; i < texts.size(); ++i) {
        const std::vector<float> alone = embed(*embedder, {texts[i]});
        EXPECT_TRUE(same_bytes(alone.data(), together.data() + i * d, d)) << path << " text " << i;
      }
    }
  }
}

TEST(Embedder, LongTextsAreRefusedUnlessTruncated) {
  EmbedderOptions options;
  options.context = 20;
  const auto strict = load(kModels + "bert", options);
  ASSERT_NE(strict, nullptr);
  const std::string text(40, 'x');
  const auto refused = strict->encode(text);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("42"), std::string::npos);
  EXPECT_NE(refused.status().message().find("20"), std::string::npos);
  options.truncate = true;
  const auto cutting = load(kModels + "bert", options);
  ASSERT_NE(cutting, nullptr);
  const auto cut = cutting->encode(text);
  ASSERT_TRUE(cut.ok());
  const auto fits = strict->encode(std::string(18, 'x'));
  ASSERT_TRUE(fits.ok());
  EXPECT_EQ(*cut, *fits);  // the text's end is still there
  options.context = 161;
  auto file = ModelFile::open(kModels + "bert");
  EXPECT_EQ(Embedder::load(std::move(*file), options).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(Embedder, EnginesDoNotTakeEncoders) {
  const auto engine = Engine::open(kModels + "bert");
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(engine.status().message().find("encoder"), std::string::npos);
}

// What the folder of a sentence-transformers model says about pooling.
TEST(Embedder, PoolingComesFromTheModelsFiles) {
  const DecoderFolder decoder;
  const TempFolder& folder = decoder.folder();
  std::filesystem::create_directory(folder.file("1_Pooling"));
  const auto pooling = [&] {
    auto file = ModelFile::open(decoder.path());
    return read_pooling(*file);
  };
  folder.write("modules.json", R"([{"type": "s.models.Transformer", "path": ""},
      {"type": "s.models.Pooling", "path": "1_Pooling"},
      {"type": "s.models.Normalize", "path": "2_Normalize"}])");
  folder.write("1_Pooling/config.json",
               R"({"word_embedding_dimension": 32, "pooling_mode_cls_token": true,
                   "pooling_mode_mean_tokens": false})");
  ASSERT_TRUE(pooling().ok()) << pooling().status().message();
  EXPECT_EQ(*pooling(), Pooling::kCls);
  folder.write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})");
  EXPECT_EQ(*pooling(), Pooling::kMean);
  folder.write("1_Pooling/config.json", R"({"pooling_mode_max_tokens": true})");
  EXPECT_NE(pooling().status().message().find("pooling_mode_max_tokens"), std::string::npos);
  folder.write("1_Pooling/config.json",
               R"({"pooling_mode": "lasttoken", "pooling_mode_mean_tokens": true})");
  EXPECT_EQ(*pooling(), Pooling::kLast);
  folder.write("1_Pooling/config.json", R"({"pooling_mode": "weightedmean"})");
  EXPECT_NE(pooling().status().message().find("weightedmean"), std::string::npos);
  folder.write("modules.json", R"([{"type": "s.models.Pooling", "path": "../1_Pooling"}])");
  EXPECT_EQ(pooling().status().code(), StatusCode::kDamaged);
  folder.write("modules.json", R"([{"type": "s.models.Dense", "path": "2_Dense"}])");
  EXPECT_NE(pooling().status().message().find("Dense"), std::string::npos);
}

}  // namespace
}  // namespace kvikk
