// Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#tokenizer
#include "models/vocabulary.h"

#include <cstdint>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/mapped_file.h"
#include "text/tokenizer_json.h"

namespace kvikk {
namespace {

constexpr char kChatTemplate[] = "tokenizer.chat_template";

// Writers of -1 as u32 mean that there is no such token.
constexpr uint64_t kNoToken = std::numeric_limits<uint32_t>::max();

Status read_token_id(const GgufFile& file, const char* key, size_t tokens,
                     std::optional<TokenId>* out) {
  if (!file.has(key)) return ok_status();
  TRY_ASSIGN(const uint64_t id, file.get_uint(key));
  if (id == kNoToken) return ok_status();
  if (id >= tokens) {
    return damaged(file.path() + ": key '" + key + "' is " + std::to_string(id) +
                   " but the vocabulary has " + std::to_string(tokens) + " tokens");
  }
  *out = static_cast<TokenId>(id);
  return ok_status();
}

Status read_flag(const GgufFile& file, const char* key, std::optional<bool>* out) {
  if (!file.has(key)) return ok_status();
  TRY_ASSIGN(*out, file.get_bool(key));
  return ok_status();
}

Status read_types(const GgufFile& file, std::vector<TokenType>* out) {
  constexpr char kKey[] = "tokenizer.ggml.token_type";
  if (!file.has(kKey)) return ok_status();
  TRY_ASSIGN(const std::vector<int64_t> types, file.get_ints(kKey));
  out->reserve(types.size());
  for (size_t id = 0; id < types.size(); ++id) {
    if (types[id] < 1 || types[id] > static_cast<int64_t>(TokenType::kByte)) {
      return damaged(file.path() + ": key '" + kKey + "' gives token " + std::to_string(id) +
                     " the type " + std::to_string(types[id]) + "; known are 1 to 6");
    }
    out->push_back(static_cast<TokenType>(types[id]));
  }
  return ok_status();
}

Status read_special_tokens(const GgufFile& file, VocabularyData* data) {
  const size_t tokens = data->tokens.size();
  TRY(read_token_id(file, "tokenizer.ggml.bos_token_id", tokens, &data->bos));
  TRY(read_token_id(file, "tokenizer.ggml.eos_token_id", tokens, &data->eos));
  TRY(read_token_id(file, "tokenizer.ggml.eot_token_id", tokens, &data->eot));
  TRY(read_token_id(file, "tokenizer.ggml.unknown_token_id", tokens, &data->unk));
  TRY(read_token_id(file, "tokenizer.ggml.padding_token_id", tokens, &data->pad));
  if (data->model == "bert") {  // texts stand between [CLS] and [SEP]; the misspelling is GGUF's
    TRY(read_token_id(file, "tokenizer.ggml.cls_token_id", tokens, &data->bos));
    TRY(read_token_id(file, "tokenizer.ggml.seperator_token_id", tokens, &data->eos));
  }
  TRY(read_flag(file, "tokenizer.ggml.add_bos_token", &data->add_bos));
  TRY(read_flag(file, "tokenizer.ggml.add_eos_token", &data->add_eos));
  TRY(read_flag(file, "tokenizer.ggml.add_space_prefix", &data->add_space_prefix));
  return read_flag(file, "tokenizer.ggml.remove_extra_whitespaces",
                   &data->remove_extra_whitespaces);
}

// The file's text; empty where it does not exist.
Result<std::string> read_optional_file(const std::string& folder, const char* name) {
  constexpr uintmax_t kFileBytesMax = uintmax_t{1} << 30;
  const std::string path = folder + "/" + name;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::string();
  TRY_ASSIGN(const MappedFile file, MappedFile::open(path));
  if (file.bytes().size() > kFileBytesMax) {
    return unsupported(path + ": has " + std::to_string(file.bytes().size()) + " bytes; at most " +
                       std::to_string(kFileBytesMax) + " are supported");
  }
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

Result<TokenizerFiles> read_tokenizer_files(const std::string& folder, bool with_tokenizer = true) {
  TokenizerFiles files;
  files.folder = folder;
  if (with_tokenizer) {
    TRY_ASSIGN(files.tokenizer, read_optional_file(folder, "tokenizer.json"));
  }
  TRY_ASSIGN(files.tokenizer_config, read_optional_file(folder, "tokenizer_config.json"));
  TRY_ASSIGN(files.special_tokens_map, read_optional_file(folder, "special_tokens_map.json"));
  TRY_ASSIGN(files.generation_config, read_optional_file(folder, "generation_config.json"));
  TRY_ASSIGN(files.chat_template, read_optional_file(folder, "chat_template.jinja"));
  TRY_ASSIGN(files.chat_template_json, read_optional_file(folder, "chat_template.json"));
  return files;
}

}  // namespace

Result<VocabularyData> read_vocabulary(const GgufFile& file) {
  VocabularyData data;
  TRY_ASSIGN(data.model, file.get_string("tokenizer.ggml.model"));
  TRY_ASSIGN(data.architecture, file.get_string("general.architecture"));
  TRY_ASSIGN(data.tokens, file.get_strings("tokenizer.ggml.tokens"));
  TRY(read_types(file, &data.types));
  // Each kind of vocabulary needs one of merges and scores, and may have the other.
  if (data.model == "gpt2" || file.has("tokenizer.ggml.merges")) {
    TRY_ASSIGN(data.merges, file.get_strings("tokenizer.ggml.merges"));
  }
  const bool needs_scores = data.model == "llama" || data.model == "t5";
  if (needs_scores || file.has("tokenizer.ggml.scores")) {
    TRY_ASSIGN(data.scores, file.get_floats("tokenizer.ggml.scores"));
  }
  // Without it the text would be cut by a guess, and the model fed tokens that it never saw.
  if (data.model == "gpt2" || file.has("tokenizer.ggml.pre")) {
    TRY_ASSIGN(data.pre, file.get_string("tokenizer.ggml.pre"));
  }
  if (file.has("tokenizer.ggml.precompiled_charsmap")) {
    TRY_ASSIGN(const std::vector<int64_t> bytes,
               file.get_ints("tokenizer.ggml.precompiled_charsmap"));
    for (const int64_t byte : bytes) data.charsmap.push_back(static_cast<char>(byte));
  }
  TRY(read_special_tokens(file, &data));
  return data;
}

Result<std::optional<std::string>> read_chat_template(const GgufFile& file) {
  if (!file.has(kChatTemplate)) return std::optional<std::string>();
  TRY_ASSIGN(std::string text, file.get_string(kChatTemplate));
  return std::optional<std::string>(std::move(text));
}

Result<Tokenizer> read_tokenizer(const GgufFile& file) {
  TRY_ASSIGN(VocabularyData data, read_vocabulary(file));
  return Tokenizer::create(std::move(data));
}

Result<std::optional<Tokenizer>> read_folder_tokenizer(const std::string& folder) {
  TRY_ASSIGN(const TokenizerFiles files, read_tokenizer_files(folder));
  if (files.tokenizer.empty()) {
    TRY_ASSIGN(const std::string model, read_optional_file(folder, "tokenizer.model"));
    if (model.empty()) return std::optional<Tokenizer>();
    TRY_ASSIGN(Tokenizer tokenizer, tokenizer_from_sentencepiece(files, model));
    return std::optional<Tokenizer>(std::move(tokenizer));
  }
  TRY_ASSIGN(Tokenizer tokenizer, tokenizer_from_json(files));
  return std::optional<Tokenizer>(std::move(tokenizer));
}

Result<std::optional<std::string>> read_folder_chat_template(const std::string& folder) {
  TRY_ASSIGN(const TokenizerFiles files, read_tokenizer_files(folder, false));
  return chat_template_from_json(files);
}

}  // namespace kvikk
