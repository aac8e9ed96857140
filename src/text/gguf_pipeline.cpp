// GGUF keeps the vocabulary and names the rest. What it leaves out is that of the original
// pipelines of each family.
#include "text/char_class.h"
#include "text/piece_bpe.h"
#include "text/pipeline.h"

namespace kvikk {
namespace {

bool is_gemma(const VocabularyData& data) { return data.architecture.starts_with("gemma"); }

// GGUF conversion writes the user-defined runs of U+2581 of Gemma's vocabulary with plain spaces.
// The original finds only U+2581 itself in a text; runs of spaces come from merges.
void restore_space_marks(VocabularyData* data) {
  for (size_t id = 0; id < data->tokens.size() && id < data->types.size(); ++id) {
    std::string& token = data->tokens[id];
    const bool only_spaces = token.find_first_not_of(' ') == std::string::npos;
    if (data->types[id] != TokenType::kUserDefined || !only_spaces) continue;
    std::string marks;
    for (size_t i = 0; i < token.size(); ++i) marks += PieceBpe::kSpaceMark;
    token = std::move(marks);
  }
}

// Phi-3's control tokens swallow the white space that follows them; GGUF does not say so.
bool strips_right(const VocabularyData& data, std::string_view token) {
  return data.architecture == "phi3" && data.model == "llama" && token != "<unk>" &&
         token != "<s>" && token != "<|endoftext|>";
}

// Conversion puts U+2581 before tokens that begin a word and takes "##" from all others.
void restore_wordpiece(VocabularyData* data) {
  for (size_t id = 0; id < data->tokens.size(); ++id) {
    if (id < data->types.size() && !can_come_from_text(data->types[id])) continue;
    std::string& token = data->tokens[id];
    if (token.starts_with(PieceBpe::kSpaceMark)) {
      token.erase(0, PieceBpe::kSpaceMark.size());
    } else {
      token.insert(0, "##");
    }
  }
}

// Whether a WordPiece vocabulary is of lower-case text; GGUF does not say so.
bool is_lowercase(const VocabularyData& data) {
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    if (id < data.types.size() && data.types[id] != TokenType::kNormal) continue;
    for (const char c : data.tokens[id]) {
      if (c >= 'A' && c <= 'Z') return false;
    }
  }
  return true;
}

Status set_bert(VocabularyData* data, Pipeline* pipeline) {
  restore_wordpiece(data);
  const bool lowercase = is_lowercase(*data);
  TRY(pipeline->normalizer.add_bert({.strip_accents = lowercase, .lowercase = lowercase}));
  TRY(pipeline->pretokenizer.add_bert());
  return pipeline->decoder.add_wordpiece("##", true);
}

Status set_t5(const VocabularyData& data, Pipeline* pipeline) {
  if (!data.charsmap.empty()) {
    TRY_ASSIGN(Charsmap charsmap, Charsmap::create(data.charsmap));
    TRY(pipeline->normalizer.add_charsmap(std::move(charsmap)));
  }
  const bool prefix = data.add_space_prefix.value_or(true);
  if (data.remove_extra_whitespaces.value_or(true)) {
    TRY(pipeline->pretokenizer.add_split(TextPattern::characters(is_white_space),
                                         SplitBehavior::kRemoved, false));
  }
  TRY(pipeline->pretokenizer.add_metaspace(
      PieceBpe::kSpaceMark, prefix ? Pretokenizer::Prefix::kAlways : Pretokenizer::Prefix::kNever,
      true));
  TRY(pipeline->decoder.add_byte_fallback());
  return pipeline->decoder.add_metaspace(PieceBpe::kSpaceMark, prefix);
}

Status set_llama(const VocabularyData& data, Pipeline* pipeline) {
  if (!data.charsmap.empty()) {
    TRY_ASSIGN(Charsmap charsmap, Charsmap::create(data.charsmap));
    TRY(pipeline->normalizer.add_charsmap(std::move(charsmap)));
  }
  const bool prefix = data.add_space_prefix.value_or(!is_gemma(data));
  TRY(pipeline->normalizer.add_plain_spaces(prefix));
  TRY_ASSIGN(TextPattern mark, TextPattern::literal(PieceBpe::kSpaceMark));
  TRY(pipeline->decoder.add_replace(std::move(mark), " "));
  TRY(pipeline->decoder.add_byte_fallback());
  TRY(pipeline->decoder.add_fuse());
  return pipeline->decoder.add_strip(' ', prefix ? 1 : 0, 0);
}

Status set_gpt2(const VocabularyData& data, Pipeline* pipeline) {
  TRY_ASSIGN(pipeline->pretokenizer, Pretokenizer::create(data.pre));
  const NamedPipeline named = named_pipeline(data.pre);
  if (named.nfc) TRY(pipeline->normalizer.add_form(UnicodeForm::kNfc));
  pipeline->ignore_merges = named.ignore_merges;
  return pipeline->decoder.add_byte_level();
}

bool adds_bos(const VocabularyData& data) {
  if (data.add_bos.has_value()) return *data.add_bos;
  if (data.model == "gpt2") return named_pipeline(data.pre).add_bos;
  return data.model != "t5";
}

bool adds_eos(const VocabularyData& data) {
  if (data.add_eos.has_value()) return *data.add_eos;
  return data.model == "t5" || data.model == "bert";
}

}  // namespace

Result<Pipeline> gguf_pipeline(VocabularyData* data) {
  Pipeline pipeline;
  if (data->model == "gpt2") {
    TRY(set_gpt2(*data, &pipeline));
  } else if (data->model == "llama") {
    if (is_gemma(*data)) restore_space_marks(data);
    TRY(set_llama(*data, &pipeline));
  } else if (data->model == "t5") {
    TRY(set_t5(*data, &pipeline));
  } else if (data->model == "bert") {
    TRY(set_bert(data, &pipeline));
  } else {
    return unsupported("tokenizer model '" + data->model +
                       "' (tokenizer.ggml.model) is not supported; supported are: gpt2 llama t5 "
                       "bert");
  }
  for (size_t id = 0; id < data->tokens.size() && id < data->types.size(); ++id) {
    if (!is_added_token(data->types[id])) continue;
    AddedToken token;
    token.id = static_cast<TokenId>(id);
    token.text = data->tokens[id];
    token.rstrip = strips_right(*data, token.text);
    pipeline.added.push_back(std::move(token));
  }
  if (adds_bos(*data) && data->bos.has_value()) pipeline.prefix.push_back(*data->bos);
  if (adds_eos(*data) && data->eos.has_value()) pipeline.suffix.push_back(*data->eos);
  return pipeline;
}

}  // namespace kvikk
