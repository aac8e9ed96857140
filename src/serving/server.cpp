#include "serving/server.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <random>

#include "serving/access.h"
#include "serving/answer_writer.h"
#include "serving/generation.h"
#include "serving/http_server.h"
#include "serving/metrics.h"
#include "serving/model_host.h"
#include "serving/task_threads.h"
#include "serving/usage_ledger.h"
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

ApiError server_stopping() { return {503, "the server is stopping", "", "server_stopping"}; }
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

Json load_json(const EngineLoad& load) {
  return {{"running", load.running},
          {"waiting", load.waiting},
          {"kv_cache_usage", load.cache_used},
          {"prefix_cache_blocks", load.cached_blocks},
          {"prefix_disk_bytes", load.disk.bytes},
          {"cached_tokens_total", load.stats.cached_tokens},
          {"prefill_rows_total", load.stats.prefill_rows},
          {"decode_rows_total", load.stats.decode_rows},
          {"steps_total", load.stats.steps}};
}

Json usage_json(const std::string& key, const std::vector<UsageRow>& rows) {
  Json data = Json::array();
  for (const UsageRow& row : rows) {
    data.push_back({{"model", row.key.model},
                    {"day", row.key.day},
                    {"requests", row.counts.requests},
                    {"prompt_tokens", row.counts.prompt_tokens},
                    {"cached_tokens", row.counts.cached_tokens},
                    {"completion_tokens", row.counts.completion_tokens}});
  }
  return {{"object", "list"}, {"key", key}, {"data", std::move(data)}};
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
  answer.content_type = asset.content_type;
  if (answer.content_type.starts_with("text/")) answer.content_type += "; charset=utf-8";
  answer.body.assign(reinterpret_cast<const char*>(asset.bytes), asset.size);
  answer.headers = {{"Content-Security-Policy",
                     "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
                     "connect-src 'self'; font-src 'self'; img-src 'self' data:; base-uri 'none'; "
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
  explicit Parts(Setup s) : setup(std::move(s)) {}

  Setup setup;
  ApiKeys keys;
  std::unique_ptr<UsageLedger> ledger;  // null: nothing is counted
  std::unique_ptr<Metrics> metrics;
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<ModelHost> model_host;
  std::unique_ptr<TaskThreads> readers;
  uint64_t id_base = random_number();
  uint64_t requests = 0;  // the network's thread's
  int64_t started = seconds_since_1970();

  // What is known of a request before its body is read.
  struct Call {
    std::string id;
    std::optional<size_t> key;  // its number; none: there are no keys
    Generation::Clock::time_point came = Generation::Clock::now();
  };

  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply);
  std::string key_name(const Call& call) const {
    return call.key.has_value() ? keys.name(*call.key) : std::string();
  }
  bool admit(const HttpRequest& request, HttpReply& reply, Call& call);
  void get(const HttpRequest& request, const Call& call, std::shared_ptr<HttpReply> reply);
  void get_usage(const Call& call, std::shared_ptr<HttpReply> reply);
  void generate(const PostRoute& route, const Call& call, HttpRequest request,
                std::shared_ptr<HttpReply> reply);
  void answer(const PostRoute& route, const Call& call, HttpRequest request,
              std::shared_ptr<HttpReply> reply);
  // What is to be made of a request's body: `use` makes it on a reading thread once the model is
  // there; `done` hears of it on any thread. Where the error has a message nothing was made, and
  // there is no lease.
  struct BodyWork {
    using Use = std::function<Status(const ApiContext&, const Json&, std::string& field)>;
    using Done = std::function<void(size_t model, const ApiError&, const ModelHost::Lease&)>;
    Call call;
    Use use;
    Done done;
    Json json;
    size_t model = 0;
  };
  // False: too many wait to be read.
  bool read(const Call& call, BodyWork::Use use, BodyWork::Done done, std::string body);
  void read_body(const std::shared_ptr<BodyWork>& work, const std::string& body);
  ApiError parse_body(BodyWork& work, const std::string& body) const;
  void on_model(const std::shared_ptr<BodyWork>& work, const Result<ModelHost::Lease>& lease);
  void use_body(const BodyWork& work, const ModelHost::Lease& lease) const;
  ApiError find_model(const Json& body, size_t& model) const;
  std::vector<ModelStatus> statuses() const;
  Json model_json(size_t index, const std::string& name) const;
  Json models_json() const;
  Json loads_json() const;
  void count(const Call& call, size_t model, const GenerationReport& report);
  void log(const std::string& id, const std::string& path, size_t model,
           const GenerationReport& report);
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
  get(request, call, std::move(reply));
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
  call.key = keys.find(request);
  if (call.key.has_value()) return true;
  return refuse({401, "the API key is missing or wrong", "", "invalid_api_key"},
                {{"WWW-Authenticate", "Basic realm=\"kvikk\", charset=\"UTF-8\""}});
}

void Server::Parts::get(const HttpRequest& request, const Call& call,
                        std::shared_ptr<HttpReply> reply) {
  HttpAnswer found;
  const std::string& path = request.path;
  const std::string models = "/v1/models";
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (const WebAsset* asset = find_asset(path)) {
    found = page_answer(*asset);
  } else if (path == "/health") {
    found.body = "{\"status\":\"ok\"}\n";
  } else if (path == models) {
    found.body = json_line(models_json());
  } else if (path == "/metrics") {
    found.content_type = "text/plain; version=0.0.4; charset=utf-8";
    found.body = metrics->text(statuses(), http->connections());
  } else if (path == "/v1/usage" && ledger != nullptr) {
    if (reads) return get_usage(call, std::move(reply));
  } else if (path == "/v1/loads") {
    found.body = json_line(loads_json());
  } else if (const auto model = path.starts_with(models + "/")
                                    ? model_host->find(path.substr(models.size() + 1))
                                    : std::nullopt) {
    found.body = json_line(model_json(*model, path.substr(models.size() + 1)));
  } else {
    return reply->send(error_answer(
        style_of(path), {404, "there is no '" + short_text(path) + "'", "", "not_found"}));
  }
  if (!reads) {
    found =
        error_answer(style_of(path), {405, path + " is asked with GET", "", "method_not_allowed"});
    found.headers.push_back({"Allow", "GET, HEAD"});
  }
  reply->send(std::move(found));
}

void Server::Parts::generate(const PostRoute& route, const Call& call, HttpRequest request,
                             std::shared_ptr<HttpReply> reply) {
  const auto model = std::make_shared<size_t>(0);
  const auto generation = std::make_shared<Generation>(
      route.style, std::vector<HttpHeader>{{"X-Request-Id", call.id}}, std::move(reply), call.came,
      [this, model, call, path = request.path](const GenerationReport& report) {
        metrics->count(*model, report);
        count(call, *model, report);
        log(call.id, path, *model, report);
      });
  const auto made = std::make_shared<ApiRequest>();
  const auto use = [&route, made](const ApiContext& context, const Json& json, std::string& field) {
    TRY_ASSIGN(*made, route.read(context, json, field));
    return ok_status();
  };
  const auto done = [this, made, model, generation](size_t index, const ApiError& error,
                                                    const ModelHost::Lease& lease) {
    http->post([made, model, generation, index, error, lease] {
      *model = index;
      if (!error.message.empty()) return generation->fail(error);
      generation->start(std::move(*made),
                        std::shared_ptr<EngineThread>(lease, lease->runner.get()));
    });
  };
  if (!read(call, use, done, std::move(request.body))) generation->fail(too_many_to_read());
}

void Server::Parts::answer(const PostRoute& route, const Call& call, HttpRequest request,
                           std::shared_ptr<HttpReply> reply) {
  const auto found = std::make_shared<Json>();
  const auto use = [&route, found](const ApiContext& context, const Json& json,
                                   std::string& field) {
    TRY_ASSIGN(*found, route.answer(context, json, field));
    return ok_status();
  };
  const auto done = [this, &route, found, reply](size_t, const ApiError& error,
                                                 const ModelHost::Lease&) {
    HttpAnswer answer;
    if (error.message.empty()) {
      answer.body = json_line(*found);
    } else {
      answer = error_answer(route.style, error);
    }
    http->post([reply, answer] { reply->send(answer); });
  };
  if (!read(call, use, done, std::move(request.body))) {
    reply->send(error_answer(route.style, too_many_to_read()));
  }
}

bool Server::Parts::read(const Call& call, BodyWork::Use use, BodyWork::Done done,
                         std::string body) {
  auto work = std::make_shared<BodyWork>(BodyWork{call, std::move(use), std::move(done), {}, 0});
  return readers->run([this, work, body = std::move(body)] { read_body(work, body); });
}

// On a reading thread, which does not wait for a model to be loaded.
void Server::Parts::read_body(const std::shared_ptr<BodyWork>& work, const std::string& body) {
  const ApiError error = parse_body(*work, body);
  if (!error.message.empty()) return work->done(work->model, error, nullptr);
  const auto lease = model_host->take(
      work->model, [this, work](const Result<ModelHost::Lease>& ready) { on_model(work, ready); });
  if (!lease.has_value()) return;
  if (lease->ok()) return use_body(*work, **lease);
  const bool full = lease->status().code() == StatusCode::kExhausted;
  work->done(work->model,
             full ? ApiError{429, lease->status().message(), "", "queue_full"} : server_stopping(),
             nullptr);
}

// The error; none where its message is empty.
ApiError Server::Parts::parse_body(BodyWork& work, const std::string& body) const {
  try {
    auto json = parse_json_object(body, "the body");
    if (!json.ok()) return error_of(json.status(), "");
    work.json = std::move(*json);
    return find_model(work.json, work.model);
  } catch (const std::bad_alloc&) {
    return {503, "out of memory", "", "out_of_memory"};
  }
}

// On the host's thread: the model that was waited for is there or cannot be.
void Server::Parts::on_model(const std::shared_ptr<BodyWork>& work,
                             const Result<ModelHost::Lease>& lease) {
  ApiError error;
  if (lease.ok()) {
    const bool taken = readers->run([this, work, held = *lease] { use_body(*work, held); });
    if (taken) return;
    error = too_many_to_read();
  } else if (lease.status().code() == StatusCode::kCancelled) {
    error = server_stopping();
  } else {  // what went wrong may name files
    error = {500,
             "model '" + model_host->model(work->model).name +
                 "' could not be loaded; the server's log says why",
             "model", "model_not_loaded"};
  }
  work->done(work->model, error, nullptr);
}

// On a reading thread.
void Server::Parts::use_body(const BodyWork& work, const ModelHost::Lease& lease) const {
  ApiError error;
  try {
    std::string field;
    ApiContext context{*lease->engine,
                       setup.sampling,
                       model_host->model(work.model).name,
                       work.call.id,
                       seconds_since_1970(),
                       work.call.key.has_value() ? keys.client(*work.call.key) : 0};
    context.repetition_guard = setup.options.repetition_guard;
    if (setup.options.request_seconds > 0) {
      context.deadline = work.call.came + std::chrono::seconds(setup.options.request_seconds);
    }
    const Status status = work.use(context, work.json, field);
    if (!status.ok()) error = error_of(status, field);
  } catch (const std::bad_alloc&) {
    error = {503, "out of memory", "", "out_of_memory"};
  } catch (const std::exception& unexpected) {
    error = {500, unexpected.what(), "", "internal_error"};
  }
  work.done(work.model, error, error.message.empty() ? lease : nullptr);
}

// The model that the body names; the first where it names none. The error as parse_body.
ApiError Server::Parts::find_model(const Json& body, size_t& model) const {
  const auto found = body.find("model");
  if (found == body.end() || found->is_null()) return {};
  if (!found->is_string()) return {400, "'model' must be a text", "model", ""};
  const auto& name = found->get_ref<const std::string&>();
  if (const auto index = model_host->find(name)) {
    model = *index;
    return {};
  }
  std::string names;
  for (size_t i = 0; i < model_host->count(); ++i) {
    names += (i == 0 ? "'" : ", '") + model_host->model(i).name + "'";
  }
  return {404, "there is no model '" + short_text(name) + "' here; there is " + names, "model",
          "model_not_found"};
}

std::vector<ModelStatus> Server::Parts::statuses() const {
  std::vector<ModelStatus> all;
  for (size_t i = 0; i < model_host->count(); ++i) all.push_back(model_host->status(i));
  return all;
}

Json Server::Parts::model_json(size_t index, const std::string& name) const {
  const ModelStatus status = model_host->status(index);
  Json json = {{"id", name},
               {"object", "model"},
               {"created", started},
               {"owned_by", "kvikk"},
               {"loaded", status.loaded}};
  if (status.context > 0) json["max_model_len"] = status.context;
  return json;
}

Json Server::Parts::models_json() const {
  Json list = Json::array();
  for (size_t i = 0; i < model_host->count(); ++i) {
    const ServedModel& model = model_host->model(i);
    list.push_back(model_json(i, model.name));
    for (const std::string& name : model.names) list.push_back(model_json(i, name));
  }
  return {{"object", "list"}, {"data", std::move(list)}};
}

Json Server::Parts::loads_json() const {
  Json models = Json::array();
  EngineLoad total;
  for (size_t i = 0; i < model_host->count(); ++i) {
    const ModelStatus status = model_host->status(i);
    total.running += status.load.running;
    total.waiting += status.load.waiting;
    total.cache_used = std::max(total.cache_used, status.load.cache_used);
    total.cached_blocks += status.load.cached_blocks;
    add_counts(total, status.load);
    models.push_back({{"model", model_host->model(i).name},
                      {"loaded", status.loaded},
                      {"memory_bytes", status.memory_bytes},
                      {"kv", status.kv}});
    models.back().update(load_json(status.load));
  }
  Json json = {{"queue_max", setup.options.queue},
               {"parallel", model_host->status(0).parallel},
               {"kv", model_host->status(0).kv},
               {"connections", http->connections()}};
  json.update(load_json(total));
  json["models"] = std::move(models);
  return json;
}

// What was computed for a key, also for those who did not wait for the end.
void Server::Parts::count(const Call& call, size_t model, const GenerationReport& report) {
  if (ledger == nullptr || report.choices.empty()) return;
  UsageCounts counts;
  for (const Answer& c : report.choices) {
    if (c.tokens.empty() && report.status != 200) continue;  // it had not begun
    counts.requests = 1;
    counts.prompt_tokens += static_cast<int64_t>(c.prompt_tokens);
    counts.cached_tokens += static_cast<int64_t>(c.cached_tokens);
    counts.completion_tokens += static_cast<int64_t>(c.tokens.size());
  }
  if (counts.requests == 0) return;
  const UsageKey key = {key_name(call), model_host->model(model).name, usage_day()};
  if (ledger->add(key, counts) || !setup.note) return;
  setup.note("usage of '" + key.key + "' was lost: " + ledger->failure());
}

// What the key that asks has used.
void Server::Parts::get_usage(const Call& call, std::shared_ptr<HttpReply> reply) {
  const bool taken = readers->run([this, name = key_name(call), reply] {
    HttpAnswer answer;
    const auto rows = ledger->read(name);
    if (rows.ok()) {
      answer.body = json_line(usage_json(name, *rows));
    } else {
      answer = error_answer(ApiStyle::kOpenAi,
                            {500, "the usage cannot be read; the server's log says why", "", ""});
      if (setup.note) setup.note("usage: " + rows.status().message());
    }
    http->post([reply, answer] { reply->send(answer); });
  });
  if (!taken) reply->send(error_answer(ApiStyle::kOpenAi, too_many_to_read()));
}

void Server::Parts::log(const std::string& id, const std::string& path, size_t model,
                        const GenerationReport& report) {
  if (!setup.log || (!setup.options.log_requests && report.status != 500)) return;
  size_t prompt = 0;
  size_t cached = 0;
  size_t answered = 0;
  for (const Answer& c : report.choices) {
    prompt += c.prompt_tokens;
    cached += c.cached_tokens;
    answered += c.tokens.size();
  }
  Json line = {{"time", seconds_since_1970()},
               {"request", id},
               {"path", path},
               {"model", model_host->model(model).name},
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
  if (parts.model_host != nullptr)
    parts.model_host->stop();  // then nobody but them hands the readers work
  parts.readers.reset();
  if (parts.model_host != nullptr) parts.model_host->cancel_all();
  if (parts.http != nullptr) parts.http->stop();
}

Result<std::unique_ptr<Server>> Server::start(Setup setup) {
  const std::string& guard = setup.options.repetition_guard;
  if (guard != kGuardOff && guard != kGuardStop && guard != kGuardRetry) {
    return invalid_argument("--repetition-guard is '" + short_text(guard) +
                            "'; it must be off, stop or retry");
  }
  std::unique_ptr<Server> server(new Server(std::make_unique<Parts>(std::move(setup))));
  Parts& parts = *server->parts_;
  const ServerOptions& options = parts.setup.options;
  if (!options.api_key_file.empty()) {
    TRY_ASSIGN(parts.keys, ApiKeys::parse(parts.setup.api_keys, options.api_key_file));
  }
  if (!options.usage_file.empty()) {
    TRY_ASSIGN(parts.ledger, UsageLedger::open(options.usage_file));
  }
  ModelHost::Options host;
  host.memory_bytes_max = parts.setup.memory_bytes_max;
  host.idle_max = std::chrono::seconds(options.keep_alive);
  host.queue_max = static_cast<size_t>(options.queue);
  host.note = parts.setup.note;
  host.deliver = [&parts](std::function<void()> task) { parts.http->post(std::move(task)); };
  TRY_ASSIGN(parts.model_host, ModelHost::start(parts.setup.models, std::move(host)));

  HttpServerOptions http;
  http.host = options.host;
  http.port = options.port;
  http.tls_cert = options.tls_cert;
  http.tls_key = options.tls_key;
  http.body_bytes_max = static_cast<size_t>(options.body_mib) << 20;
  TRY_ASSIGN(parts.http, HttpServer::listen(http));
  std::vector<std::string> names;
  for (const ServedModel& model : parts.setup.models) names.push_back(model.name);
  parts.metrics = std::make_unique<Metrics>(names);
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
