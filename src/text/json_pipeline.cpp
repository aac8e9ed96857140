// One function for each kind of step; sequences are flattened.
#include "text/json_pipeline.h"

#include <functional>
#include <optional>

#include "text/base64.h"
#include "text/char_class.h"
#include "text/utf8.h"

namespace kvikk {
namespace {

constexpr int kSequenceDepthMax = 8;

// Calls step(place, type) for `place` or, where it is a Sequence, for each of its list `items`.
Status for_each_step(const JsonPlace& place, const char* items, int depth,
                     const std::function<Status(const JsonPlace&, const std::string&)>& step) {
  TRY_ASSIGN(const std::string type, place.text("type"));
  if (type != "Sequence") return step(place, type);
  if (depth == kSequenceDepthMax) return place.unsupported("sequences are nested too deeply");
  TRY_ASSIGN(const JsonPlace list, place.list(items));
  for (size_t i = 0; i < list.size(); ++i) {
    TRY(for_each_step(list.item(i), items, depth + 1, step));
  }
  return ok_status();
}

Status unknown_type(const JsonPlace& place, const std::string& type, const char* known) {
  return place.unsupported("the type '" + type + "' is not supported; supported are: " + known);
}

// {"String": ".."} or {"Regex": ".."}.
Result<TextPattern> read_pattern(const JsonPlace& place) {
  TRY_ASSIGN(const JsonPlace pattern, place.at("pattern"));
  if (pattern.has("String")) {
    TRY_ASSIGN(const std::string text, pattern.text("String"));
    Result<TextPattern> literal = TextPattern::literal(text);
    return literal.ok() ? std::move(literal) : pattern.with_place(literal.status());
  }
  if (!pattern.has("Regex")) return pattern.unsupported("is neither a String nor a Regex");
  TRY_ASSIGN(const std::string regex, pattern.text("Regex"));
  Result<TextPattern> compiled = TextPattern::regex(regex);
  return compiled.ok() ? std::move(compiled) : pattern.with_place(compiled.status());
}

Status read_normalizer_step(const JsonPlace& place, const std::string& type, Normalizer* to) {
  if (type == "NFC") return to->add_form(UnicodeForm::kNfc);
  if (type == "NFD") return to->add_form(UnicodeForm::kNfd);
  if (type == "NFKC") return to->add_form(UnicodeForm::kNfkc);
  if (type == "NFKD") return to->add_form(UnicodeForm::kNfkd);
  if (type == "Lowercase") return to->add_lowercase();
  if (type == "StripAccents") return to->add_strip_accents();
  if (type == "Nmt") return to->add_nmt();
  if (type == "ByteLevel") return to->add_write_bytes();
  if (type == "Strip") {
    TRY_ASSIGN(const bool left, place.flag("strip_left", true));
    TRY_ASSIGN(const bool right, place.flag("strip_right", true));
    return to->add_strip(left, right);
  }
  if (type == "Prepend") {
    TRY_ASSIGN(const std::string prefix, place.text("prepend"));
    return to->add_prepend(prefix);
  }
  if (type == "Replace") {
    TRY_ASSIGN(TextPattern pattern, read_pattern(place));
    TRY_ASSIGN(const std::string content, place.text("content"));
    return to->add_replace(std::move(pattern), content);
  }
  if (type == "BertNormalizer") {
    Normalizer::Bert bert;
    TRY_ASSIGN(bert.clean_text, place.flag("clean_text", true));
    TRY_ASSIGN(bert.handle_chinese_chars, place.flag("handle_chinese_chars", true));
    TRY_ASSIGN(bert.lowercase, place.flag("lowercase", true));
    TRY_ASSIGN(bert.strip_accents, place.flag("strip_accents", bert.lowercase));
    return to->add_bert(bert);
  }
  if (type == "Precompiled") {
    TRY_ASSIGN(const std::string base64, place.text("precompiled_charsmap"));
    const std::optional<std::string> bytes = decode_base64(base64);
    if (!bytes.has_value()) return place.damaged("has a precompiled_charsmap that is no base64");
    TRY_ASSIGN(Charsmap charsmap, Charsmap::create(*bytes));
    return to->add_charsmap(std::move(charsmap));
  }
  return unknown_type(place, type,
                      "NFC NFD NFKC NFKD Lowercase Strip StripAccents Nmt Prepend Replace "
                      "BertNormalizer Precompiled ByteLevel Sequence");
}

Result<SplitBehavior> read_behavior(const JsonPlace& place) {
  TRY_ASSIGN(const std::string name, place.text("behavior"));
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return place.unsupported("the behavior '" + name +
                           "' is not supported; supported are: Isolated Removed "
                           "MergedWithPrevious MergedWithNext Contiguous");
}

Status read_metaspace(const JsonPlace& place, Pretokenizer* to) {
  TRY_ASSIGN(const std::string mark, place.text("replacement"));
  Pretokenizer::Prefix prefix = Pretokenizer::Prefix::kAlways;
  if (place.has("prepend_scheme")) {
    TRY_ASSIGN(const std::string scheme, place.text("prepend_scheme"));
    if (scheme == "first") {
      prefix = Pretokenizer::Prefix::kFirst;
    } else if (scheme == "never") {
      prefix = Pretokenizer::Prefix::kNever;
    } else if (scheme != "always") {
      return place.unsupported("the prepend_scheme '" + scheme +
                               "' is not supported; supported are: always first never");
    }
  }
  TRY_ASSIGN(const bool adds, place.flag("add_prefix_space", true));
  if (!adds) prefix = Pretokenizer::Prefix::kNever;
  TRY_ASSIGN(const bool cuts, place.flag("split", true));
  return to->add_metaspace(mark, prefix, cuts);
}

// ByteLevel's own expression, of GPT-2.
constexpr std::string_view kByteLevelRegex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Status add_pattern(std::string_view regex, SplitBehavior behavior, bool invert, Pretokenizer* to) {
  TRY_ASSIGN(TextPattern pattern, TextPattern::regex(regex));
  return to->add_split(std::move(pattern), behavior, invert);
}

Status read_pretokenizer_step(const JsonPlace& place, const std::string& type, Pretokenizer* to) {
  if (type == "ByteLevel") {
    TRY_ASSIGN(const bool prefix_space, place.flag("add_prefix_space", true));
    TRY_ASSIGN(const bool use_regex, place.flag("use_regex", true));
    if (prefix_space) TRY(to->add_prefix_space());
    if (use_regex) TRY(to->add_regex(kByteLevelRegex));
    return to->add_write_bytes();
  }
  if (type == "Split") {
    TRY_ASSIGN(TextPattern pattern, read_pattern(place));
    TRY_ASSIGN(const SplitBehavior behavior, read_behavior(place));
    TRY_ASSIGN(const bool invert, place.flag("invert", false));
    return to->add_split(std::move(pattern), behavior, invert);
  }
  if (type == "Metaspace") return read_metaspace(place, to);
  if (type == "Whitespace") {
    return add_pattern(R"([\w\x{200C}\x{200D}]+|[^\w\s\x{200C}\x{200D}]+)", SplitBehavior::kRemoved,
                       true, to);
  }
  if (type == "WhitespaceSplit") {
    return to->add_split(TextPattern::characters(is_white_space), SplitBehavior::kRemoved, false);
  }
  if (type == "Punctuation") {
    SplitBehavior behavior = SplitBehavior::kIsolated;
    if (place.has("behavior")) {
      TRY_ASSIGN(behavior, read_behavior(place));
    }
    return to->add_split(TextPattern::characters(is_punctuation), behavior, false);
  }
  if (type == "Digits") {
    TRY_ASSIGN(const bool individual, place.flag("individual_digits", false));
    return to->add_split(TextPattern::characters(is_numeric),
                         individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false);
  }
  if (type == "BertPreTokenizer") return to->add_bert();
  if (type == "CharDelimiterSplit") {
    TRY_ASSIGN(const std::string delimiter, place.text("delimiter"));
    TRY_ASSIGN(TextPattern pattern, TextPattern::literal(delimiter));
    return to->add_split(std::move(pattern), SplitBehavior::kRemoved, false);
  }
  return unknown_type(place, type,
                      "ByteLevel Split Metaspace Whitespace WhitespaceSplit Punctuation Digits "
                      "BertPreTokenizer CharDelimiterSplit Sequence");
}

Status read_decoder_step(const JsonPlace& place, const std::string& type, TokenDecoder* to) {
  if (type == "ByteLevel") return to->add_byte_level();
  if (type == "ByteFallback") return to->add_byte_fallback();
  if (type == "Fuse") return to->add_fuse();
  if (type == "Metaspace") {
    TRY_ASSIGN(const std::string mark, place.text("replacement"));
    TRY_ASSIGN(const bool adds, place.flag("add_prefix_space", true));
    bool never = !adds;
    if (place.has("prepend_scheme")) {
      TRY_ASSIGN(const std::string scheme, place.text("prepend_scheme"));
      never = never || scheme == "never";
    }
    return to->add_metaspace(mark, !never);
  }
  if (type == "Strip") {
    TRY_ASSIGN(const std::string content, place.text("content"));
    TRY_ASSIGN(const size_t start, place.count("start", 0));
    TRY_ASSIGN(const size_t stop, place.count("stop", 0));
    const bool is_one = !content.empty() && is_valid_utf8(content) &&
                        decode_valid_utf8(content.data()).bytes == content.size();
    if (!is_one) return place.unsupported("content is not one character");
    return to->add_strip(decode_valid_utf8(content.data()).code_point, start, stop);
  }
  if (type == "Replace") {
    TRY_ASSIGN(TextPattern pattern, read_pattern(place));
    TRY_ASSIGN(const std::string content, place.text("content"));
    return to->add_replace(std::move(pattern), content);
  }
  if (type == "WordPiece") {
    TRY_ASSIGN(const std::string prefix, place.text("prefix"));
    TRY_ASSIGN(const bool cleanup, place.flag("cleanup", true));
    return to->add_wordpiece(prefix, cleanup);
  }
  return unknown_type(place, type,
                      "ByteLevel ByteFallback Fuse Metaspace Strip Replace WordPiece Sequence");
}

// ["</s>", 2] under `key`.
Result<TokenId> read_token_pair(const JsonPlace& place, const char* key) {
  TRY_ASSIGN(const JsonPlace pair, place.list(key));
  const bool is_pair = pair.size() == 2 && pair.value()[1].is_number_unsigned() &&
                       pair.value()[1].get<uint64_t>() < kVocabularyTokensMax;
  if (!is_pair) return pair.damaged("is not a token and its id");
  return static_cast<TokenId>(pair.value()[1].get<uint64_t>());
}

// The ids of a special token of TemplateProcessing.
Status read_template_token(const JsonPlace& place, const std::string& name,
                           std::vector<TokenId>* out) {
  constexpr size_t kIdsMax = 64;
  TRY_ASSIGN(const JsonPlace tokens, place.at("special_tokens"));
  TRY_ASSIGN(const JsonPlace token, tokens.at(name));
  TRY_ASSIGN(const JsonPlace ids, token.list("ids"));
  if (ids.size() > kIdsMax) return ids.unsupported("has too many ids");
  for (const auto& id : ids.value()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kVocabularyTokensMax) {
      return ids.damaged("holds something that is no id");
    }
    out->push_back(static_cast<TokenId>(id.get<uint64_t>()));
  }
  return ok_status();
}

Status read_template(const JsonPlace& place, Pipeline* to) {
  constexpr size_t kPiecesMax = 64;
  TRY_ASSIGN(const JsonPlace single, place.list("single"));
  if (single.size() > kPiecesMax) return single.unsupported("has too many pieces");
  std::vector<TokenId>* out = &to->prefix;
  int sequences = 0;
  std::vector<TokenId> prefix;
  std::vector<TokenId> suffix;
  for (size_t i = 0; i < single.size(); ++i) {
    const JsonPlace piece = single.item(i);
    if (piece.has("Sequence")) {
      ++sequences;
      continue;
    }
    TRY_ASSIGN(const JsonPlace special, piece.at("SpecialToken"));
    TRY_ASSIGN(const std::string name, special.text("id"));
    TRY(read_template_token(place, name, sequences == 0 ? &prefix : &suffix));
  }
  if (sequences != 1) return single.unsupported("does not have the text exactly once");
  // In a sequence of processors the later ones are the outer ones.
  out->insert(out->begin(), prefix.begin(), prefix.end());
  to->suffix.insert(to->suffix.end(), suffix.begin(), suffix.end());
  return ok_status();
}

Status read_post_step(const JsonPlace& place, const std::string& type, Pipeline* to) {
  if (type == "ByteLevel") return ok_status();  // only changes offsets
  if (type == "TemplateProcessing") return read_template(place, to);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    TRY_ASSIGN(const TokenId cls, read_token_pair(place, "cls"));
    TRY_ASSIGN(const TokenId sep, read_token_pair(place, "sep"));
    to->prefix.insert(to->prefix.begin(), cls);
    to->suffix.push_back(sep);
    return ok_status();
  }
  return unknown_type(place, type,
                      "TemplateProcessing BertProcessing RobertaProcessing ByteLevel Sequence");
}

// `read` with the place in front of messages that have none.
template <class Target>
auto placed(Status (*read)(const JsonPlace&, const std::string&, Target*), Target* to) {
  return [read, to](const JsonPlace& place, const std::string& type) {
    const Status status = read(place, type, to);
    const bool has_place = status.message().find(place.path()) != std::string::npos;
    return has_place ? status : place.with_place(status);
  };
}

}  // namespace

Status read_normalizer(const JsonPlace& file, Normalizer* normalizer) {
  if (!file.has("normalizer")) return ok_status();
  TRY_ASSIGN(const JsonPlace place, file.at("normalizer"));
  return for_each_step(place, "normalizers", 0, placed(read_normalizer_step, normalizer));
}

Status read_pretokenizer(const JsonPlace& file, Pretokenizer* pretokenizer) {
  if (!file.has("pre_tokenizer")) return ok_status();
  TRY_ASSIGN(const JsonPlace place, file.at("pre_tokenizer"));
  return for_each_step(place, "pretokenizers", 0, placed(read_pretokenizer_step, pretokenizer));
}

Status read_decoder(const JsonPlace& file, TokenDecoder* decoder) {
  if (!file.has("decoder")) return decoder->add_spaces_between();
  TRY_ASSIGN(const JsonPlace place, file.at("decoder"));
  return for_each_step(place, "decoders", 0, placed(read_decoder_step, decoder));
}

Status read_post_processor(const JsonPlace& file, Pipeline* pipeline) {
  if (!file.has("post_processor")) return ok_status();
  TRY_ASSIGN(const JsonPlace place, file.at("post_processor"));
  return for_each_step(place, "processors", 0, placed(read_post_step, pipeline));
}

}  // namespace kvikk
