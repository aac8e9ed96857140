// A request body of any bytes: every endpoint that reads one refuses it or makes requests that the
// engine takes. The first byte chooses the endpoint.

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>

#include "serving/answer_writer.h"
#include "text/json_text.h"

namespace {

using namespace kvikk;

Engine& engine() {
  static const auto loaded = [] {
    EngineOptions options;
    options.context = 256;
    options.threads = 1;
    options.kv_memory_mib = 4;
    auto made =
        Engine::open(std::string(KVIKK_TEST_DATA) + "/models/llama/model-q4_0.gguf", options);
    if (!made.ok()) std::abort();
    return std::move(*made);
  }();
  return *loaded;
}

constexpr ReadApiRequest kReaders[] = {read_chat_completion, read_completion, read_response_request,
                                       read_message_request};
constexpr AnswerQuery kQueries[] = {count_message_tokens, tokenize_text, detokenize_tokens,
                                    apply_chat_template};

void read(size_t which, const ApiContext& context, const Json& body) {
  std::string field;
  if (which >= std::size(kReaders)) {
    const auto answer = kQueries[which - std::size(kReaders)](context, body, field);
    if (answer.ok()) json_line(*answer);
    return;
  }
  auto request = kReaders[which](context, body, field);
  if (!request.ok()) {
    if (request.status().message().empty()) std::abort();
    json_line(error_json(ApiStyle::kOpenAi, {400, request.status().message(), field, ""}));
    return;
  }
  std::vector<Answer> completions(request->choices.size());
  if (completions.empty()) std::abort();
  for (const Request& choice : request->choices) {
    if (!engine().check(choice).ok()) std::abort();
  }
  request->writer->begin();
  json_line(request->writer->whole(completions));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t which = data[0] % (std::size(kReaders) + std::size(kQueries));
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto json = parse_json_object(body, "the body");
  if (!json.ok()) return 0;
  const ApiContext context{engine(), {}, "model", "id"};
  read(which, context, *json);
  return 0;
}
