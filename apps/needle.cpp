#include "needle.h"

#include <algorithm>
#include <array>

#include "codec/counter_random.h"
#include "model_source.h"
#include "text/numbers.h"

namespace kvikk {
namespace {

constexpr std::array<const char*, kNeedlesMax> kCities = {
    "Lisbon", "Oslo",   "Nairobi", "Quito",  "Kyoto",    "Tallinn", "Havana",
    "Cairo",  "Dublin", "Manila",  "Prague", "Santiago", "Vienna",  "Hanoi",
    "Accra",  "Bern",   "Riga",    "Lima",   "Tunis",    "Zagreb"};
constexpr size_t kAnswerTokens = 16;
constexpr size_t kFitTriesMax = 12;

std::string number_of(size_t needle, size_t length) {
  return std::to_string(10000 + counter_random(length, needle) % 90000);
}

// The next end of a sentence from `at` on, or of the text.
size_t sentence_end(const std::string& text, size_t at) {
  constexpr size_t kLookMax = 2000;
  for (size_t i = at; i + 1 < text.size() && i < at + kLookMax; ++i) {
    if (text[i] == '\n' || (text[i] == '.' && text[i + 1] == ' ')) return i + 1;
  }
  return std::min(at + kLookMax, text.size());
}

// The first `bytes` of the haystack with the needles in it.
std::string hide(const std::string& haystack, size_t bytes, size_t length, size_t count) {
  std::string out;
  size_t from = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t wanted = count > 1 ? bytes * i / (count - 1) : bytes / 2;
    const size_t at = i == 0 && count > 1 ? 0 : std::min(sentence_end(haystack, wanted), bytes);
    if (at > from) out += haystack.substr(from, at - from);
    from = std::max(from, at);
    out +=
        std::string(" The secret number of ") + kCities[i] + " is " + number_of(i, length) + ". ";
  }
  return out + haystack.substr(from, bytes - from);
}

struct Asker {
  Engine& engine;
  bool chat;

  Result<std::vector<TokenId>> prompt(const std::string& text, size_t needle) const {
    const std::string city = kCities[needle];
    if (!chat) return engine.encode(text + "\n\nThe secret number of " + city + " is");
    return engine.encode_chat({{"user", text + "\n\nWhat is the secret number of " + city +
                                            "? Answer with the number alone."}});
  }
};

bool has_number(std::string answer, const std::string& number) {
  std::erase(answer, ',');  // 12,345
  return answer.find(number) != std::string::npos;
}

// Bytes of the haystack whose prompt is as long as asked for, at most 2% shorter.
Result<size_t> fit_haystack(const Asker& asker, const std::string& haystack, size_t length,
                            size_t count) {
  size_t bytes = std::min(haystack.size(), length * 4);
  size_t fits = 0;
  for (size_t i = 0; i < kFitTriesMax; ++i) {
    TRY_ASSIGN(const auto prompt, asker.prompt(hide(haystack, bytes, length, count), 0));
    if (prompt.size() <= length) fits = std::max(fits, bytes);
    if (prompt.size() <= length && prompt.size() * 100 >= length * 98) break;
    if (prompt.size() < length && bytes == haystack.size()) {
      return invalid_argument("the haystack has " + count_text(prompt.size()) +
                              " tokens with its needles; a length of " + count_text(length) +
                              " needs a longer one");
    }
    const double ratio = 0.99 * static_cast<double>(length) / static_cast<double>(prompt.size());
    bytes = std::min(haystack.size(), static_cast<size_t>(static_cast<double>(bytes) * ratio));
  }
  if (fits == 0) {
    return invalid_argument("a length of " + count_text(length) + " tokens is too short for " +
                            count_text(count) + " needles");
  }
  return fits;
}

}  // namespace

size_t needle_context(size_t length) { return length + kAnswerTokens; }

Result<std::vector<Needle>> find_needles(Engine& engine, const std::string& haystack, size_t length,
                                         size_t count, const std::function<Status()>& go_on) {
  TRY_ASSIGN(const bool chat, has_chat_template(engine.file()));
  const Asker asker{engine, chat};
  TRY_ASSIGN(const size_t bytes, fit_haystack(asker, haystack, length, count));
  const std::string text = hide(haystack, bytes, length, count);
  std::vector<Needle> needles;
  for (size_t i = 0; i < count; ++i) {
    TRY(go_on());
    Request request;
    TRY_ASSIGN(request.tokens, asker.prompt(text, i));
    request.max_tokens = kAnswerTokens;
    request.sampling.temperature = 0;
    Status stopped;
    TRY_ASSIGN(Completion completion, engine.complete(std::move(request), [&] {
      if (stopped.ok()) stopped = go_on();
      return !stopped.ok();
    }));
    TRY(stopped);
    Needle needle;
    needle.depth = count > 1 ? static_cast<double>(i) / static_cast<double>(count - 1) : 0.5;
    needle.found = has_number(completion.text, number_of(i, length));
    needle.answer = std::move(completion.text);
    needles.push_back(std::move(needle));
  }
  return needles;
}

}  // namespace kvikk
