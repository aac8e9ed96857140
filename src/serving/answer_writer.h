#pragma once
// How one of the APIs reads a request and says its answer.

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "serving/engine_thread.h"
#include "serving/fields.h"
#include "serving/http.h"

namespace kvikk {

// What a client is told when its request is refused or fails.
struct ApiError {
  int status = 400;
  std::string message;
  std::string field;  // of the request; may be empty
  std::string code;   // "model_not_found"; may be empty
};

enum class ApiStyle { kOpenAi, kAnthropic };

// The error as the API writes it.
Json error_json(ApiStyle style, const ApiError& error);
HttpAnswer error_answer(ApiStyle style, const ApiError& error);

// One server-sent event: `event` (may be empty) and its data.
std::string server_event(std::string_view event, const Json& data);

inline constexpr char kGuardOff[] = "off";
inline constexpr char kGuardStop[] = "stop";
inline constexpr char kGuardRetry[] = "retry";
inline constexpr int kGuardRetriesMax = 2;

// Adds what the repetition guard did, if it did.
void say_guard(Json& json, const Answer& answer);

// Tells the client what is computed, in the words of its API. Used on the network's thread only.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  // A stream, in this order; each returns bytes of server-sent events.
  virtual std::string begin() = 0;
  virtual std::string token(size_t choice, const TokenEvent& event) = 0;
  virtual std::string choice_end(size_t choice, const Answer& completion) = 0;
  virtual std::string end(std::span<const Answer> choices) = 0;
  // Instead of the rest.
  virtual std::string failure(const ApiError& error) = 0;

  // Without streaming.
  virtual Json whole(std::span<const Answer> choices) = 0;
};

// A request that is ready to be computed.
struct ApiRequest {
  std::vector<Request> choices;
  bool stream = false;
  GuardPolicy guard;
  std::unique_ptr<AnswerWriter> writer;
};

// What a request needs to know of the server.
struct ApiContext {
  Engine& engine;
  SamplingOptions defaults;
  std::string model;    // its name in answers
  std::string id;       // of this request, unique
  int64_t created = 0;  // seconds since 1970
  uint64_t client = 0;  // whose key it shows
  std::chrono::steady_clock::time_point deadline{};
  std::string repetition_guard = kGuardOff;  // where the request does not say
};

inline constexpr int64_t kChoicesMax = 16;  // n, and prompts of one request

// Reads a request. On failure `field` is the field that was wrong, if it was one. Errors:
// kInvalidArgument, kUnsupported, kExhausted (longer than the context); all are the client's.
using ReadApiRequest = Result<ApiRequest> (*)(const ApiContext& context, const Json& body,
                                              std::string& field);

Result<ApiRequest> read_chat_completion(const ApiContext& context, const Json& body,
                                        std::string& field);
Result<ApiRequest> read_completion(const ApiContext& context, const Json& body, std::string& field);
Result<ApiRequest> read_response_request(const ApiContext& context, const Json& body,
                                         std::string& field);
Result<ApiRequest> read_message_request(const ApiContext& context, const Json& body,
                                        std::string& field);

// Answers a request that needs no computing. As ReadApiRequest.
using AnswerQuery = Result<Json> (*)(const ApiContext& context, const Json& body,
                                     std::string& field);

Result<Json> count_message_tokens(const ApiContext& context, const Json& body, std::string& field);
Result<Json> tokenize_text(const ApiContext& context, const Json& body, std::string& field);
Result<Json> detokenize_tokens(const ApiContext& context, const Json& body, std::string& field);
Result<Json> apply_chat_template(const ApiContext& context, const Json& body, std::string& field);

}  // namespace kvikk
