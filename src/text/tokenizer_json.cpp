// The order is that of the library: the model's vocabulary, the added tokens of tokenizer.json,
// those of tokenizer_config.json, which win, and the named special tokens, which become special.
#include "text/tokenizer_json.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "text/byte_alphabet.h"
#include "text/json_pipeline.h"
#include "text/piece_bpe.h"
#include "text/tokenizer_json_file.h"

namespace kvikk {
namespace {

using Json = JsonPlace::Json;

constexpr size_t kAddedTokensMax = size_t{1} << 20;

// What tokenizer.json says of one added token, or tokenizer_config.json.
struct AddedRule {
  AddedToken token;
  bool special = false;
  bool normalized = false;
};

class JsonTokenizer {
 public:
  explicit JsonTokenizer(const TokenizerFiles& files) : files_(files) {}

  Result<Tokenizer> create() {
    TRY_ASSIGN(file_, read_tokenizer_json(name_of("tokenizer.json"), files_.tokenizer));
    TRY_ASSIGN(config_, read_optional("tokenizer_config.json", files_.tokenizer_config));
    TRY_ASSIGN(special_map_, read_optional("special_tokens_map.json", files_.special_tokens_map));
    TRY_ASSIGN(generation_, read_optional("generation_config.json", files_.generation_config));
    const JsonPlace top(file_.rest, name_of("tokenizer.json"));
    TRY(read_pipeline(top));
    TRY_ASSIGN(const JsonPlace model, top.at("model"));
    TRY_ASSIGN(const std::string type, model_type(model));
    TRY(read_vocabulary(model));
    TRY(read_added_tokens(top));
    TRY(read_config_tokens());
    TRY(read_named_tokens());
    TRY(read_model(model, type));
    TRY(apply_added_tokens());
    TRY(read_bos_and_eos());
    TRY(read_end_tokens());
    Result<Tokenizer> tokenizer = Tokenizer::create(std::move(data_), std::move(pipeline_));
    return tokenizer.ok() ? std::move(tokenizer) : top.with_place(tokenizer.status());
  }

 private:
  std::string name_of(const char* file) const { return files_.folder + "/" + file; }

  Result<Json> read_optional(const char* file, const std::string& text) const {
    if (text.empty()) return Json::object();
    return read_json_object(name_of(file), text);
  }
  JsonPlace config() const { return {config_, name_of("tokenizer_config.json")}; }
  JsonPlace special_map() const { return {special_map_, name_of("special_tokens_map.json")}; }

  Status read_pipeline(const JsonPlace& top) {
    TRY(read_normalizer(top, &pipeline_.normalizer));
    TRY(read_pretokenizer(top, &pipeline_.pretokenizer));
    TRY(read_decoder(top, &pipeline_.decoder));
    return read_post_processor(top, &pipeline_);
  }

  // Old files do not say it.
  Result<std::string> model_type(const JsonPlace& model) const {
    std::string type;
    if (model.has("type")) {
      TRY_ASSIGN(type, model.text("type"));
    } else {
      type = file_.has_merges ? "BPE" : !file_.scores.empty() ? "Unigram" : "WordPiece";
    }
    if (type == "BPE" || type == "Unigram" || type == "WordPiece") return type;
    return model.unsupported("the type '" + type +
                             "' is not supported; supported are: BPE Unigram WordPiece");
  }

  Status add_token(const JsonPlace& model, std::string text, int64_t id) {
    if (id < 0 || static_cast<uint64_t>(id) >= kVocabularyTokensMax) {
      return model.damaged("gives the token '" + text + "' the id " + std::to_string(id));
    }
    const auto index = static_cast<size_t>(id);
    if (index >= data_.tokens.size()) {
      data_.tokens.resize(index + 1);
      data_.types.resize(index + 1, TokenType::kUnused);
    }
    if (data_.types[index] != TokenType::kUnused) {
      return model.damaged("gives the id " + std::to_string(id) + " to '" + data_.tokens[index] +
                           "' and to '" + text + "'");
    }
    data_.tokens[index] = std::move(text);
    data_.types[index] = TokenType::kNormal;
    return ok_status();
  }

  Status read_vocabulary(const JsonPlace& model) {
    if (!file_.has_vocab) return model.damaged("has no vocab");
    for (auto& [text, id] : file_.ids) TRY(add_token(model, std::move(text), id));
    for (size_t i = 0; i < file_.scores.size(); ++i) {
      TRY(add_token(model, std::move(file_.scores[i].first), static_cast<int64_t>(i)));
      data_.exact_scores.push_back(file_.scores[i].second);
    }
    model_tokens_ = data_.tokens.size();
    data_.merges = std::move(file_.merges);
    data_.merge_separator = file_.merge_separator;
    data_.skips_control_merges = true;
    ids_.reserve(data_.tokens.size());
    for (size_t id = 0; id < data_.tokens.size(); ++id) {
      if (data_.types[id] == TokenType::kUnused) continue;
      ids_.emplace(data_.tokens[id], static_cast<TokenId>(id));
    }
    return ok_status();
  }

  std::optional<TokenId> find(const std::string& text) const {
    const auto found = ids_.find(text);
    return found == ids_.end() ? std::nullopt : std::optional<TokenId>(found->second);
  }

  // {"content": "..", "lstrip": false, ...}
  Result<AddedRule> read_rule(const JsonPlace& place) const {
    AddedRule rule;
    TRY_ASSIGN(rule.token.text, place.text("content"));
    TRY_ASSIGN(rule.special, place.flag("special", false));
    TRY_ASSIGN(rule.normalized, place.flag("normalized", !rule.special));
    TRY_ASSIGN(rule.token.lstrip, place.flag("lstrip", false));
    TRY_ASSIGN(rule.token.rstrip, place.flag("rstrip", false));
    TRY_ASSIGN(rule.token.single_word, place.flag("single_word", false));
    return rule;
  }

  // A later rule for the same text replaces an earlier one. `id` is what the file says, or what the
  // library would choose.
  Status add_rule(const JsonPlace& place, AddedRule rule, std::optional<uint64_t> id) {
    if (rule.token.text.empty()) return ok_status();
    if (rules_.size() == kAddedTokensMax) return place.unsupported("too many added tokens");
    const std::optional<TokenId> known = find(rule.token.text);
    if (!known.has_value()) {
      const uint64_t next = id.value_or(data_.tokens.size());
      if (next >= kVocabularyTokensMax) {
        return place.damaged("gives '" + rule.token.text + "' the id " + std::to_string(next));
      }
      TRY(add_token(place, rule.token.text, static_cast<int64_t>(next)));
      rule.token.id = static_cast<TokenId>(next);
      ids_.emplace(rule.token.text, rule.token.id);
    } else {
      rule.token.id = *known;
      if (id.has_value() && *id != static_cast<uint64_t>(*known)) {
        return place.damaged("gives '" + rule.token.text + "' the id " + std::to_string(*id) +
                             " but elsewhere it is " + std::to_string(*known));
      }
    }
    rules_[rule.token.id] = std::move(rule);
    return ok_status();
  }

  Status read_added_tokens(const JsonPlace& top) {
    if (!top.has("added_tokens")) return ok_status();
    TRY_ASSIGN(const JsonPlace list, top.list("added_tokens"));
    for (size_t i = 0; i < list.size(); ++i) {
      const JsonPlace item = list.item(i);
      TRY_ASSIGN(AddedRule rule, read_rule(item));
      TRY_ASSIGN(const size_t id, item.count("id", SIZE_MAX));
      if (id == SIZE_MAX) return item.damaged("has no id");
      TRY(add_rule(item, std::move(rule), id));
    }
    return ok_status();
  }

  Status read_config_tokens() {
    if (!config().has("added_tokens_decoder")) return ok_status();
    TRY_ASSIGN(const JsonPlace tokens, config().at("added_tokens_decoder"));
    if (!tokens.value().is_object()) return tokens.damaged("is not an object");
    std::map<uint64_t, std::string> keys;  // in the order of their numbers
    for (const auto& [key, value] : tokens.value().items()) {
      constexpr size_t kDigitsMax = 9;
      const bool is_number =
          !key.empty() && key.size() <= kDigitsMax &&
          std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
      if (!is_number) return tokens.damaged("has the key '" + key + "', which is no id");
      keys[std::stoull(key)] = key;
    }
    for (const auto& [id, key] : keys) {
      TRY_ASSIGN(const JsonPlace item, tokens.at(key));
      TRY_ASSIGN(AddedRule rule, read_rule(item));
      TRY(add_rule(item, std::move(rule), id));
    }
    return ok_status();
  }

  // "bos_token" and its like: a string, or an object with its content.
  Result<std::optional<std::string>> named_token(const char* key) const {
    for (const JsonPlace& place : {config(), special_map()}) {
      if (!place.has(key)) continue;
      TRY_ASSIGN(const JsonPlace token, place.at(key));
      if (token.value().is_string()) return std::optional(token.value().get<std::string>());
      TRY_ASSIGN(std::string content, token.text("content"));
      return std::optional(std::move(content));
    }
    return std::optional<std::string>();
  }

  // Special by their name, whether or not the files list them among the added tokens.
  Status read_named_tokens() {
    for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                            "cls_token", "mask_token"}) {
      TRY_ASSIGN(const std::optional<std::string> text, named_token(key));
      if (!text.has_value()) continue;
      const std::optional<TokenId> id = find(*text);
      if (!id.has_value()) continue;  // named, but no part of this vocabulary
      if (rules_.count(*id) != 0) {
        rules_[*id].special = true;
        continue;
      }
      AddedRule rule;
      rule.token.text = *text;
      rule.special = true;
      TRY(add_rule(config(), std::move(rule), *id));
    }
    return ok_status();
  }

  Status read_model(const JsonPlace& model, const std::string& type) {
    if (type == "BPE") return read_bpe(model);
    if (type == "Unigram") return read_unigram(model);
    data_.model = "bert";
    TRY_ASSIGN(const std::string unknown, model.text("unk_token"));
    TRY(set_unknown(model, unknown));
    if (model.has("continuing_subword_prefix")) {
      TRY_ASSIGN(pipeline_.wordpiece.prefix, model.text("continuing_subword_prefix"));
    }
    TRY_ASSIGN(pipeline_.wordpiece.word_characters_max,
               model.count("max_input_chars_per_word", 100));
    return ok_status();
  }

  Status set_unknown(const JsonPlace& model, const std::string& text) {
    data_.unk = find(text);
    if (data_.unk.has_value()) return ok_status();
    return model.damaged("has the unk_token '" + text + "', which is not in its vocab");
  }

  Status read_bpe(const JsonPlace& model) {
    if (model.has("dropout")) {
      TRY_ASSIGN(const JsonPlace dropout, model.at("dropout"));
      if (!dropout.value().is_number() || dropout.value().get<double>() != 0) {
        return dropout.unsupported("the same text would have different tokens each time");
      }
    }
    CharBpe::Options& options = pipeline_.char_bpe;
    if (model.has("continuing_subword_prefix")) {
      TRY_ASSIGN(options.prefix, model.text("continuing_subword_prefix"));
    }
    if (model.has("end_of_word_suffix")) {
      TRY_ASSIGN(options.suffix, model.text("end_of_word_suffix"));
    }
    TRY_ASSIGN(options.byte_fallback, model.flag("byte_fallback", false));
    TRY_ASSIGN(options.fuse_unknown, model.flag("fuse_unk", false));
    TRY_ASSIGN(options.ignore_merges, model.flag("ignore_merges", false));
    pipeline_.ignore_merges = options.ignore_merges;
    if (model.has("unk_token")) {
      TRY_ASSIGN(const std::string unknown, model.text("unk_token"));
      if (!unknown.empty()) data_.unk = find(unknown);
    }
    const bool writes_bytes =
        pipeline_.normalizer.writes_bytes() || pipeline_.pretokenizer.writes_bytes();
    const bool is_byte_level = writes_bytes && options.prefix.empty() && options.suffix.empty() &&
                               !options.byte_fallback && has_all_bytes() && !data_.merges.empty();
    data_.model = is_byte_level ? "gpt2" : "bpe";
    if (is_byte_level) return pipeline_.pretokenizer.restore_bytes();
    if (options.byte_fallback) set_byte_types();
    return ok_status();
  }

  bool has_all_bytes() const {
    for (int byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      if (!find(write_bytes(std::string_view(&c, 1))).has_value()) return false;
    }
    return true;
  }

  void set_byte_types() {
    for (size_t id = 0; id < model_tokens_; ++id) {
      if (PieceBpe::token_byte(data_.tokens[id]).has_value()) data_.types[id] = TokenType::kByte;
    }
  }

  Status read_unigram(const JsonPlace& model) {
    data_.model = "t5";
    TRY_ASSIGN(const size_t unknown, model.count("unk_id", SIZE_MAX));
    if (unknown != SIZE_MAX) {
      if (unknown >= model_tokens_) {
        return model.damaged("has the unk_id " + std::to_string(unknown) + " but " +
                             std::to_string(model_tokens_) + " tokens");
      }
      data_.unk = static_cast<TokenId>(unknown);
    }
    TRY_ASSIGN(const bool byte_fallback, model.flag("byte_fallback", false));
    if (byte_fallback) set_byte_types();
    if (data_.exact_scores.size() != model_tokens_)
      return model.damaged("has a vocab without scores");
    return ok_status();
  }

  Status apply_added_tokens() {
    if (data_.unk.has_value()) data_.types[*data_.unk] = TokenType::kUnknown;
    for (auto& [id, rule] : rules_) {
      TokenType& type = data_.types[id];
      if (rule.special && type != TokenType::kUnknown) type = TokenType::kControl;
      if (!rule.special) type = TokenType::kUserDefined;
      std::vector<AddedToken>& list =
          rule.normalized ? pipeline_.normalized_added : pipeline_.added;
      list.push_back(std::move(rule.token));
    }
    if (!data_.exact_scores.empty()) data_.exact_scores.resize(data_.tokens.size());
    // The library refuses to encode what these name.
    for (std::vector<TokenId>* ids : {&pipeline_.prefix, &pipeline_.suffix}) {
      for (const TokenId id : *ids) {
        if (static_cast<size_t>(id) < data_.tokens.size()) continue;
        return damaged(name_of("tokenizer.json") + ": post_processor names the token " +
                       std::to_string(id) + " but the vocabulary has " +
                       std::to_string(data_.tokens.size()) + " tokens");
      }
    }
    return ok_status();
  }

  Result<std::optional<TokenId>> named_id(const char* key) const {
    TRY_ASSIGN(const std::optional<std::string> text, named_token(key));
    return text.has_value() ? find(*text) : std::nullopt;
  }

  // Of these classes the library replaces the post-processor by add_bos_token and add_eos_token.
  bool class_adds_bos() const {
    const auto name = config_.find("tokenizer_class");
    if (name == config_.end() || !name->is_string()) return false;
    const auto text = name->get<std::string>();
    return text.starts_with("LlamaTokenizer") || text.starts_with("GemmaTokenizer") ||
           text.starts_with("CodeLlamaTokenizer") || text.starts_with("CohereTokenizer");
  }

  Status read_bos_and_eos() {
    TRY_ASSIGN(data_.bos, named_id("bos_token"));
    TRY_ASSIGN(data_.eos, named_id("eos_token"));
    TRY_ASSIGN(data_.pad, named_id("pad_token"));
    if (config().has("add_bos_token") || class_adds_bos()) {
      TRY_ASSIGN(const bool adds, config().flag("add_bos_token", true));
      pipeline_.prefix.clear();
      if (adds && data_.bos.has_value()) pipeline_.prefix.push_back(*data_.bos);
    }
    if (config().has("add_eos_token") || class_adds_bos()) {
      TRY_ASSIGN(const bool adds, config().flag("add_eos_token", false));
      pipeline_.suffix.clear();
      if (adds && data_.eos.has_value()) pipeline_.suffix.push_back(*data_.eos);
    }
    return ok_status();
  }

  // eos_token_id of generation_config.json: an id or a list of ids.
  Status read_end_tokens() {
    const JsonPlace generation(generation_, name_of("generation_config.json"));
    if (!generation.has("eos_token_id")) return ok_status();
    TRY_ASSIGN(const JsonPlace ids, generation.at("eos_token_id"));
    const Json list = ids.value().is_array() ? ids.value() : Json::array({ids.value()});
    constexpr size_t kEndTokensMax = 1024;
    if (list.size() > kEndTokensMax) return ids.unsupported("is a list of too many ids");
    for (const Json& id : list) {
      if (!id.is_number_unsigned()) return ids.damaged("is neither an id nor a list of ids");
      // Some files name ids beyond the tokenizer's, which it can never see.
      if (id.get<uint64_t>() < data_.tokens.size()) {
        data_.end_tokens.push_back(static_cast<TokenId>(id.get<uint64_t>()));
      }
    }
    return ok_status();
  }

  const TokenizerFiles& files_;
  TokenizerJsonFile file_;
  Json config_, special_map_, generation_;
  VocabularyData data_;
  Pipeline pipeline_;
  std::unordered_map<std::string, TokenId> ids_;
  std::map<TokenId, AddedRule> rules_;
  size_t model_tokens_ = 0;
};

// A template, or the one of a list of {"name": .., "template": ..} that is taken by default.
Result<std::optional<std::string>> read_template(const JsonPlace& file) {
  if (!file.has("chat_template")) return std::optional<std::string>();
  TRY_ASSIGN(const JsonPlace place, file.at("chat_template"));
  if (place.value().is_string()) return std::optional(place.value().get<std::string>());
  if (!place.value().is_array()) return place.damaged("is neither a string nor a list");
  std::string names;
  for (size_t i = 0; i < place.size(); ++i) {
    TRY_ASSIGN(const std::string name, place.item(i).text("name"));
    names += (names.empty() ? "" : " ") + name;
    if (name != "default" && place.size() > 1) continue;
    TRY_ASSIGN(std::string text, place.item(i).text("template"));
    return std::optional(std::move(text));
  }
  return place.unsupported("has no template named 'default' but: " + names);
}

}  // namespace

Result<Tokenizer> tokenizer_from_json(const TokenizerFiles& files) {
  return JsonTokenizer(files).create();
}

Result<std::optional<std::string>> chat_template_from_json(const TokenizerFiles& files) {
  if (!files.chat_template.empty()) return std::optional(files.chat_template);
  for (const auto& [name, text] : {std::pair("chat_template.json", &files.chat_template_json),
                                   std::pair("tokenizer_config.json", &files.tokenizer_config)}) {
    if (text->empty()) continue;
    const std::string path = files.folder + "/" + name;
    TRY_ASSIGN(const Json json, read_json_object(path, *text));
    TRY_ASSIGN(std::optional<std::string> found, read_template(JsonPlace(json, path)));
    if (found.has_value()) return found;
  }
  return std::optional<std::string>();
}

}  // namespace kvikk
