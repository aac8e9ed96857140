#include "serving/server.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <random>

#include "serving/access.h"
#include "serving/answer_writer.h"
#include "serving/engine_thread.h"
#include "serving/generation.h"
#include "serving/http_server.h"
#include "serving/metrics.h"
#include "serving/task_threads.h"
#include "serving/web_assets.h"
#include "text/json_text.h"
#include "text/option_entry.h"

namespace kvikk {
namespace {

constexpr size_t kReadingThreads = 2;
constexpr size_t kReadingTasksMax = 1024;  // requests that wait to be read

// What can be asked for with POST: computed by the engine (`read`), or answered at once (`answer`).
struct PostRoute {
  const char* path;
  ApiStyle style;
  ReadApiRequest read;
  AnswerQuery answer;
};
constexpr PostRoute kPostRoutes[] = {
    {"/v1/chat/completions", ApiStyle::kOpenAi, read_chat_completion, nullptr},
    {"/v1/completions", ApiStyle::kOpenAi, read_completion, nullptr},
    {"/v1/responses", ApiStyle::kOpenAi, read_response_request, nullptr},
    {"/v1/messages", ApiStyle::kAnthropic, read_message_request, nullptr},
    {"/v1/messages/count_tokens", ApiStyle::kAnthropic, nullptr, count_message_tokens},
    {"/tokenize", ApiStyle::kOpenAi, nullptr, tokenize_text},
    {"/detokenize", ApiStyle::kOpenAi, nullptr, detokenize_tokens},
    {"/apply-template", ApiStyle::kOpenAi, nullptr, apply_chat_template},
};

ApiError too_many_to_read() { return {429, "too many requests wait to be read", "", "queue_full"}; }

std::string hexadecimal(uint64_t value) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = kDigits[value >> (60 - 4 * i) & 15];
  return text;
}

uint64_t random_number() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

ApiError error_of(const Status& status, const std::string& field) {
  switch (status.code()) {
    case StatusCode::kExhausted:  // longer than the context
      return {400, status.message(), field, "context_length_exceeded"};
    case StatusCode::kIo:
      return {500, status.message(), "", "internal_error"};
    default:
      return {400, status.message(), field, ""};
  }
}

ApiStyle style_of(const std::string& path) {
  return path.starts_with("/v1/messages") ? ApiStyle::kAnthropic : ApiStyle::kOpenAi;
}

const WebAsset* find_asset(const std::string& path) {
  for (const WebAsset& asset : web_assets()) {
    if (path == asset.path) return &asset;
  }
  return nullptr;
}

// The page may load and ask nothing but this server, whatever a model's answer says.
HttpAnswer page_answer(const WebAsset& asset) {
  HttpAnswer answer;
  answer.content_type = std::string(asset.content_type) + "; charset=utf-8";
  answer.body.assign(reinterpret_cast<const char*>(asset.bytes), asset.size);
  answer.headers = {{"Content-Security-Policy",
                     "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
                     "connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
                     "form-action 'none'; frame-ancestors 'none'"},
                    {"X-Content-Type-Options", "nosniff"},
                    {"Referrer-Policy", "no-referrer"},
                    {"Cache-Control", "no-cache"}};
  return answer;
}

int64_t seconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

// Destroyed from the end: whoever computes or reads goes before the network that they answer to.
struct Server::Parts {
  Parts(Engine& e, Setup s) : engine(e), setup(std::move(s)) {}

  Engine& engine;
  Setup setup;
  ApiKeys keys;
  std::unique_ptr<Metrics> metrics;
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<EngineThread> runner;
  std::unique_ptr<TaskThreads> readers;
  uint64_t id_base = random_number();
  uint64_t requests = 0;  // the network's thread's
  int64_t started = seconds_since_1970();

  // What is known of a request before its body is read.
  struct Call {
    std::string id;
    uint64_t client = 0;  // 1 + its key's number; 0: there are no keys
    Generation::Clock::time_point came = Generation::Clock::now();
  };

  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply);
  bool admit(const HttpRequest& request, HttpReply& reply, Call& call);
  void get(const HttpRequest& request, HttpReply& reply);
  void generate(const PostRoute& route, const Call& call, HttpRequest request,
                std::shared_ptr<HttpReply> reply);
  void answer(const PostRoute& route, const Call& call, HttpRequest request,
              std::shared_ptr<HttpReply> reply);
  using UseBody = std::function<Status(const ApiContext&, const Json&, std::string& field)>;
  ApiError read_body(const Call& call, const std::string& body, const UseBody& use) const;
  bool check_model(const Json& body, ApiError& error) const;
  Json model_json() const;
  Json models_json() const;
  Json loads_json() const;
  void log(const std::string& id, const std::string& path, const GenerationReport& report);
};

void Server::Parts::handle(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  Call call;
  if (!admit(request, *reply, call)) return;
  for (const PostRoute& route : kPostRoutes) {
    if (request.path != route.path) continue;
    if (request.method == "POST") {
      call.id = hexadecimal(id_base + requests++);
      if (route.read == nullptr) return answer(route, call, std::move(request), std::move(reply));
      return generate(route, call, std::move(request), std::move(reply));
    }
    HttpAnswer refusal = error_answer(
        route.style, {405, request.path + " is asked with POST", "", "method_not_allowed"});
    refusal.headers.push_back({"Allow", "POST"});
    return reply->send(std::move(refusal));
  }
  get(request, *reply);
}

// Whether whoever asks may; answers otherwise.
bool Server::Parts::admit(const HttpRequest& request, HttpReply& reply, Call& call) {
  const ApiStyle style = style_of(request.path);
  const auto refuse = [&](ApiError error, std::vector<HttpHeader> headers = {}) {
    HttpAnswer answer = error_answer(style, error);
    for (HttpHeader& header : headers) answer.headers.push_back(std::move(header));
    reply.send(std::move(answer));
    return false;
  };
  const std::string* host = request.header("host");
  if (host == nullptr) return refuse({400, "the request has no Host header", "", ""});
  if (!is_allowed_host(*host, setup.options.allow_host)) {
    return refuse({403,
                   "the host '" + short_text(*host) +
                       "' is not known here; 'kvikk serve --allow-host NAME' allows a name",
                   "", "host_not_allowed"});
  }
  if (is_foreign_origin(request)) {
    return refuse({403, "requests from pages of other origins are refused", "", "foreign_origin"});
  }
  if (request.path == "/health" || keys.empty()) return true;
  if (const auto key = keys.find(request)) {
    call.client = 1 + *key;
    return true;
  }
  return refuse({401, "the API key is missing or wrong", "", "invalid_api_key"},
                {{"WWW-Authenticate", "Basic realm=\"kvikk\", charset=\"UTF-8\""}});
}

void Server::Parts::get(const HttpRequest& request, HttpReply& reply) {
  HttpAnswer found;
  const std::string& path = request.path;
  const std::string models = "/v1/models";
  if (const WebAsset* asset = find_asset(path)) {
    found = page_answer(*asset);
  } else if (path == "/health") {
    found.body = "{\"status\":\"ok\"}\n";
  } else if (path == models) {
    found.body = json_line(models_json());
  } else if (path == "/metrics") {
    found.content_type = "text/plain; version=0.0.4; charset=utf-8";
    found.body = metrics->text(runner->load(), http->connections());
  } else if (path == "/v1/loads") {
    found.body = json_line(loads_json());
  } else if (path.starts_with(models + "/") && path.substr(models.size() + 1) == setup.model) {
    found.body = json_line(model_json());
  } else {
    return reply.send(error_answer(
        style_of(path), {404, "there is no '" + short_text(path) + "'", "", "not_found"}));
  }
  if (request.method != "GET" && request.method != "HEAD") {
    found =
        error_answer(style_of(path), {405, path + " is asked with GET", "", "method_not_allowed"});
    found.headers.push_back({"Allow", "GET, HEAD"});
  }
  reply.send(std::move(found));
}

void Server::Parts::generate(const PostRoute& route, const Call& call, HttpRequest request,
                             std::shared_ptr<HttpReply> reply) {
  const auto generation = std::make_shared<Generation>(
      *runner, route.style, std::vector<HttpHeader>{{"X-Request-Id", call.id}}, std::move(reply),
      call.came, [this, id = call.id, path = request.path](const GenerationReport& report) {
        metrics->count(report);
        log(id, path, report);
      });
  const bool taken = readers->run([this, &route, call, body = std::move(request.body), generation] {
    auto made = std::make_shared<ApiRequest>();
    const auto use = [&](const ApiContext& context, const Json& json, std::string& field) {
      TRY_ASSIGN(*made, route.read(context, json, field));
      return ok_status();
    };
    const ApiError error = read_body(call, body, use);
    http->post([generation, made, error] {
      if (error.message.empty()) return generation->start(std::move(*made));
      generation->fail(error);
    });
  });
  if (!taken) generation->fail(too_many_to_read());
}

void Server::Parts::answer(const PostRoute& route, const Call& call, HttpRequest request,
                           std::shared_ptr<HttpReply> reply) {
  const bool taken = readers->run([this, &route, call, body = std::move(request.body), reply] {
    HttpAnswer answer;
    const auto use = [&](const ApiContext& context, const Json& json, std::string& field) {
      TRY_ASSIGN(const Json found, route.answer(context, json, field));
      answer.body = json_line(found);
      return ok_status();
    };
    const ApiError error = read_body(call, body, use);
    if (!error.message.empty()) answer = error_answer(route.style, error);
    http->post([reply, answer] { reply->send(answer); });
  });
  if (!taken) reply->send(error_answer(route.style, too_many_to_read()));
}

// On a reading thread: hands the body to `use`. The error; none where its message is empty.
ApiError Server::Parts::read_body(const Call& call, const std::string& body,
                                  const UseBody& use) const {
  ApiError error;
  try {
    const auto json = parse_json_object(body, "the body");
    if (!json.ok()) return error_of(json.status(), "");
    if (!check_model(*json, error)) return error;
    std::string field;
    ApiContext context{
        engine, setup.sampling, setup.model, call.id, seconds_since_1970(), call.client, {}};
    if (setup.options.request_seconds > 0) {
      context.deadline = call.came + std::chrono::seconds(setup.options.request_seconds);
    }
    const Status status = use(context, *json, field);
    if (!status.ok()) error = error_of(status, field);
  } catch (const std::bad_alloc&) {
    error = {503, "out of memory", "", "out_of_memory"};
  } catch (const std::exception& unexpected) {
    error = {500, unexpected.what(), "", "internal_error"};
  }
  return error;
}

bool Server::Parts::check_model(const Json& body, ApiError& error) const {
  const auto found = body.find("model");
  if (found == body.end() || found->is_null()) return true;  // there is only one
  if (!found->is_string()) {
    error = {400, "'model' must be a text", "model", ""};
    return false;
  }
  const auto& name = found->get_ref<const std::string&>();
  const auto& alias = setup.options.alias;
  if (name == setup.model || name == setup.path ||
      std::find(alias.begin(), alias.end(), name) != alias.end()) {
    return true;
  }
  error = {404, "there is no model '" + short_text(name) + "' here; there is '" + setup.model + "'",
           "model", "model_not_found"};
  return false;
}

Json Server::Parts::model_json() const {
  return {{"id", setup.model},
          {"object", "model"},
          {"created", started},
          {"owned_by", "kvikk"},
          {"max_model_len", engine.context()}};
}

Json Server::Parts::models_json() const {
  Json list = Json::array({model_json()});
  for (const std::string& alias : setup.options.alias) {
    list.push_back(model_json());
    list.back()["id"] = alias;
  }
  return {{"object", "list"}, {"data", std::move(list)}};
}

Json Server::Parts::loads_json() const {
  const EngineLoad load = runner->load();
  return {{"running", load.running},
          {"waiting", load.waiting},
          {"queue_max", runner->queue_max()},
          {"parallel", engine.options().parallel},
          {"kv_cache_usage", load.cache_used},
          {"kv", engine.options().kv},
          {"prefix_cache_blocks", load.cached_blocks},
          {"cached_tokens_total", load.stats.cached_tokens},
          {"prefill_rows_total", load.stats.prefill_rows},
          {"decode_rows_total", load.stats.decode_rows},
          {"steps_total", load.stats.steps},
          {"connections", http->connections()}};
}

void Server::Parts::log(const std::string& id, const std::string& path,
                        const GenerationReport& report) {
  if (!setup.log || (!setup.options.log_requests && report.status != 500)) return;
  size_t prompt = 0;
  size_t cached = 0;
  size_t answered = 0;
  for (const Completion& c : report.choices) {
    prompt += c.prompt_tokens;
    cached += c.cached_tokens;
    answered += c.tokens.size();
  }
  Json line = {{"time", seconds_since_1970()},
               {"request", id},
               {"path", path},
               {"status", report.status},
               {"prompt_tokens", prompt},
               {"cached_tokens", cached},
               {"completion_tokens", answered},
               {"seconds", report.seconds}};
  if (report.first_token_seconds >= 0) line["first_token_seconds"] = report.first_token_seconds;
  if (report.status == 500) line["error"] = report.error;
  setup.log(json_line(line));
}

Server::Server(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Server::~Server() {
  Parts& parts = *parts_;
  parts.readers.reset();
  if (parts.runner != nullptr) parts.runner->cancel_all();
  if (parts.http != nullptr) parts.http->stop();
}

Result<std::unique_ptr<Server>> Server::start(Engine& engine, Setup setup) {
  std::unique_ptr<Server> server(new Server(std::make_unique<Parts>(engine, std::move(setup))));
  Parts& parts = *server->parts_;
  const ServerOptions& options = parts.setup.options;
  if (!options.api_key_file.empty()) {
    TRY_ASSIGN(parts.keys, ApiKeys::parse(parts.setup.api_keys, options.api_key_file));
  }
  // Made here, on one thread; then any may use them.
  TRY(engine.tokenizer().status());
  static_cast<void>(engine.chat_template().ok());  // a base model has none

  HttpServerOptions http;
  http.host = options.host;
  http.port = options.port;
  http.body_bytes_max = static_cast<size_t>(options.body_mib) << 20;
  TRY_ASSIGN(parts.http, HttpServer::listen(http));
  parts.metrics = std::make_unique<Metrics>(parts.setup.model, engine.pool().capacity(0));
  parts.runner =
      std::make_unique<EngineThread>(engine, static_cast<size_t>(options.queue),
                                     [http_server = parts.http.get()](std::function<void()> task) {
                                       http_server->post(std::move(task));
                                     });
  parts.readers = std::make_unique<TaskThreads>(kReadingThreads, kReadingTasksMax);
  parts.http->start([&parts](HttpRequest request, std::shared_ptr<HttpReply> reply) {
    parts.handle(std::move(request), std::move(reply));
  });
  return server;
}

int Server::port() const { return parts_->http->port(); }
void Server::drain() { parts_->http->stop_accepting(); }
bool Server::drained() const { return parts_->http->connections() == 0; }

}  // namespace kvikk
