// The registry. A regular expression here is the one in the model's published tokenizer.json (the
// pre-tokenizer's Split, Digits, Punctuation and ByteLevel steps in their order), so it can be
// checked by eye. A new vocabulary is one more entry.
//
// Normalisation and ignore_merges are those of the published tokenizer.json too; GGUF does not
// carry them.
#include <array>

#include "text/pretokenizer.h"

namespace kvikk {
namespace {

// ByteLevel's own expression, of GPT-2.
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// GPT-4's, with digits in groups of at most three.
constexpr std::string_view kCl100k =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kQwen2 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                                    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// GPT-4o's: words end where lower case turns to upper case.
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kOneDigit = R"(\p{N})";
constexpr std::string_view kDigits = R"(\p{N}+)";
constexpr std::string_view kThreeDigits = R"(\p{N}{1,3})";
constexpr std::string_view kPunctuation = R"([!-/:-@\[-`{-~\p{P}]+)";
constexpr std::string_view kLineBreak = R"([\r\n])";

// DeepSeek LLM and Coder; the first class is the cased letters.
constexpr std::string_view kDeepseekLetters =
    R"(\s?[)"
    R"(A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293)"
    R"(\u0295-\u02AF\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A)"
    R"(\u038C\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-\u0556)"
    R"(\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B)"
    R"(\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D)"
    R"(\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE)"
    R"(\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4)"
    R"(\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128)"
    R"(\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184)"
    R"(\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B)"
    R"(\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17)"
    R"(\uFF21-\uFF3A\uFF41-\uFF5A\x{10400}-\x{1044F}\x{104B0}-\x{104D3})"
    R"(\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF})"
    R"(\x{1E900}-\x{1E943})"
    R"(]+)";
constexpr std::string_view kDeepseekPunctuation =
    R"(\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+)";
constexpr std::string_view kSpacesAtLineEnd = R"(\s+$)";
constexpr std::string_view kDeepseekCjk = R"([\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+)";
constexpr std::string_view kLetters = R"(\s?\p{L}+)";
constexpr std::string_view kPunctuationRun = R"(\s?\p{P}+)";

constexpr std::string_view kDeepseek3Cjk = R"([\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+)";
constexpr std::string_view kDeepseek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kBloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";

// Line breaks end a run of other characters.
constexpr std::string_view kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kBailingMoe = R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N})"
                                         R"(| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";

constexpr std::string_view kExaoneMoe =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";

// GPT-4o's with Han characters apart from all other letters.
constexpr std::string_view kKimiK2 =
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kDigitTriplesFromRight = R"((?=(\d{3})+(?!\d)))";
constexpr std::string_view kDigitsUpToTriples = R"(\d{1,3}(?=(?:\d{3})*\b))";
constexpr std::string_view kLines = R"([^\n]+|[\n]+)";

constexpr std::string_view kSentinel = R"(<sentinel:[0-9]+>)";
constexpr std::string_view kImageTokens = R"((IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z)";
constexpr std::string_view kIndents = R"(([\t\n]|    |  ))";
constexpr std::string_view kOnePunctuation = R"([\p{P}!-/:-@\[-`{-~])";

struct Definition {
  std::array<std::string_view, 12> names;  // unused ones are empty
  std::array<std::string_view, 7> stages;  // regular expressions, unused ones are empty
  // Further stages, which look at the text after its bytes became characters.
  std::array<std::string_view, 2> byte_stages = {};
  NamedPipeline pipeline = {};
};

constexpr NamedPipeline kNfc = {.nfc = true};
constexpr NamedPipeline kWholeWords = {.ignore_merges = true, .add_bos = true};

constexpr Definition kDefinitions[] = {
    {.names = {"gpt-2", "phi-2", "jais", "trillion", "granite-docling", "exaone4", "a.x-4.0",
               "gigachat", "jina-es", "jina-de", "mellum", "roberta-bpe"},
     .stages = {kGpt2}},
    {.names = {"mpt", "olmo", "modern-bert"}, .stages = {kGpt2}, .pipeline = kNfc},
    {.names = {"smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"},
     .stages = {kOneDigit, kGpt2}},
    {.names = {"command-r"}, .stages = {kOneDigit, kGpt2}, .pipeline = kNfc},
    {.names = {"falcon"},
     .stages = {kPunctuation, kGpt2},
     .byte_stages = {kDigits, "[0-9][0-9][0-9]"}},
    {.names = {"llama3", "llama-bpe", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0",
               "lfm2"},
     .stages = {kCl100k},
     .pipeline = kWholeWords},
    {.names = {"glm4", "chatglm-bpe", "dbrx", "smaug-bpe"}, .stages = {kCl100k}},
    {.names = {"qwen2", "deepseek-r1-qwen", "megrez", "hunyuan", "stablelm2", "solar-open",
               "kormo"},
     .stages = {kQwen2},
     .pipeline = kNfc},
    {.names = {"grok-2"}, .stages = {kQwen2}},
    {.names = {"laguna"}, .stages = {kLines, kQwen2}},
    {.names = {"qwen35"}, .stages = {kQwen35}, .pipeline = kNfc},
    {.names = {"gpt-4o", "llama4", "kanana2", "minimax-m2"}, .stages = {kO200k}},
    {.names = {"tiny_aya", "cohere2moe"}, .stages = {kDigitsUpToTriples, kO200k}},
    {.names = {"tekken"}, .stages = {kTekken}, .pipeline = kWholeWords},
    {.names = {"kimi-k2"}, .stages = {kKimiK2}},
    {.names = {"deepseek-llm"},
     .stages = {kLineBreak, kDeepseekLetters, kDeepseekPunctuation, kSpacesAtLineEnd, kDeepseekCjk,
                kDigits}},
    {.names = {"deepseek-coder"},
     .stages = {kLineBreak, kLetters, kPunctuationRun, kDeepseekCjk, kOneDigit}},
    {.names = {"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
     .stages = {kThreeDigits, kDeepseek3Cjk, kDeepseek3}},
    {.names = {"bloom", "poro-chat", "gpt3-finnish"}, .stages = {kBloom}},
    {.names = {"viking"}, .stages = {kBloom, kOneDigit}},
    {.names = {"superbpe"}, .stages = {kDigits, kDigitTriplesFromRight}},
    {.names = {"bailingmoe", "bailingmoe2", "llada-moe"}, .stages = {kBailingMoe}},
    {.names = {"seed-coder"}, .stages = {kSeedCoder}},
    {.names = {"exaone-moe"}, .stages = {kExaoneMoe}},
    {.names = {"chameleon"},
     .stages = {kSentinel, kImageTokens, kIndents, kOneDigit, kOnePunctuation, kGpt2},
     .pipeline = {.add_bos = true}},
};

const Definition* find_definition(std::string_view name) {
  if (name.empty()) return nullptr;
  for (const Definition& definition : kDefinitions) {
    for (const std::string_view known : definition.names) {
      if (known == name) return &definition;
    }
  }
  return nullptr;
}

Status unknown_name(std::string_view name) {
  std::string list;
  for (const std::string_view known : pretokenizer_names()) {
    if (!list.empty()) list += ' ';
    list += known;
  }
  return unsupported(
      (name.empty() ? std::string("the vocabulary names no pre-tokenizer (tokenizer.ggml.pre)")
                    : "pre-tokenizer '" + std::string(name) + "' is not known") +
      "; supported are: " + list);
}

}  // namespace

Result<Pretokenizer> Pretokenizer::create(std::string_view name) {
  const Definition* definition = find_definition(name);
  if (definition == nullptr) return unknown_name(name);
  Pretokenizer result;
  for (const std::string_view regex : definition->stages) {
    if (!regex.empty()) TRY(result.add_regex(regex));
  }
  if (definition->byte_stages[0].empty()) return result;
  TRY(result.add_write_bytes());
  for (const std::string_view regex : definition->byte_stages) TRY(result.add_regex(regex));
  TRY(result.add_read_bytes());
  return result;
}

NamedPipeline named_pipeline(std::string_view name) {
  const Definition* definition = find_definition(name);
  return definition == nullptr ? NamedPipeline() : definition->pipeline;
}

std::vector<std::string_view> pretokenizer_names() {
  std::vector<std::string_view> names;
  for (const Definition& definition : kDefinitions) {
    for (const std::string_view name : definition.names) {
      if (!name.empty()) names.push_back(name);
    }
  }
  return names;
}

std::vector<std::string_view> pretokenizer_kinds() {
  std::vector<std::string_view> names;
  for (const Definition& definition : kDefinitions) names.push_back(definition.names[0]);
  return names;
}

}  // namespace kvikk
