// kvikk serve: one engine for many users, over HTTP.

#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "model_source.h"
#include "serving/server.h"
#include "text/numbers.h"
#include "verbs.h"

namespace kvikk {
namespace {

constexpr size_t kKeyFileBytesMax = size_t{8} << 20;
constexpr int kServedAtOnce = 16;  // sequences, where --parallel does not say
constexpr int kDrainPollMs = 20;
constexpr rlim_t kDescriptors = 4096;

// "smollm2-135m", "model" of "/some/model.gguf", "folder" of "/some/folder/".
std::string name_of(std::string model) {
  while (model.size() > 1 && model.ends_with('/')) model.pop_back();
  model = model.substr(model.rfind('/') + 1);
  if (model.ends_with(".gguf")) model.resize(model.size() - 5);
  return model;
}

// Many systems give 1024 descriptors unless a program asks for more.
void ask_for_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kDescriptors) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, kDescriptors);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void wait_for_signal(const Interrupts& interrupts) {
  pollfd wait = {interrupts.event(), POLLIN, 0};
  while (!interrupts.raised()) ::poll(&wait, 1, -1);
}

// Answers what was asked, for a while. A second signal ends the program meanwhile.
void drain(Shell& shell, Server& server, int seconds) {
  shell.note("stopping: no new requests, at most " + std::to_string(seconds) +
             " s for those that run; again to stop at once");
  server.drain();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (!server.drained() && std::chrono::steady_clock::now() < end) {
    ::poll(nullptr, 0, kDrainPollMs);
  }
}

}  // namespace

Status verb_serve(Shell& shell, Arguments arguments) {
  ModelOptions model;
  ServerOptions options;
  EngineOptions engine_options;
  engine_options.parallel = kServedAtOnce;
  SamplingOptions sampling;
  Command command({"serve",
                   "",
                   "Answers requests over HTTP in the OpenAI and Anthropic APIs, many at once.\n"
                   "Ctrl-C answers what was asked, then ends; twice ends now.",
                   {"kvikk serve -m qwen2.5-coder-1.5b",
                    "kvikk serve --host 0.0.0.0 --api-key-file keys.txt --kv turbo4"}});
  command.add(model, {"model"});
  command.add_short("model", 'm');
  command.add(options, {"host", "port", "api_key_file", "alias", "allow_host", "queue"});
  command.add(sampling, {"temperature"});
  command.add(engine_options, {"threads", "context", "parallel", "kv", "kv_memory_mib", "spec"});
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();
  TRY(validate(engine_options));

  Server::Setup setup;
  setup.options = options;
  setup.sampling = sampling;
  setup.model = name_of(model.model);
  setup.path = model.model;
  setup.log = [&shell](std::string_view line) { shell.message(line); };
  if (!options.api_key_file.empty()) {
    TRY_ASSIGN(setup.api_keys, read_file(options.api_key_file, kKeyFileBytesMax));
  }
  TRY_ASSIGN(LoadedEngine loaded, load_engine(shell, model, engine_options));

  ask_for_descriptors();
  const StopOnInterrupt stop(shell.interrupts(), Interrupts::Policy::kDrain);
  TRY_ASSIGN(const std::unique_ptr<Server> server, Server::start(*loaded.engine, std::move(setup)));
  const EngineOptions& used = loaded.engine->options();
  shell.note("loaded " + name_of(model.model) + " in " + seconds_text(loaded.load_seconds) + ": " +
             std::to_string(used.parallel) + " requests at a time, context " +
             count_text(loaded.engine->context()) + " tokens, cache " + used.kv);
  const std::string host = options.host == "0.0.0.0" ? "127.0.0.1" : options.host;
  shell.note("listening on http://" + host + ":" + std::to_string(server->port()));
  wait_for_signal(shell.interrupts());
  drain(shell, *server, options.drain_seconds);
  shell.interrupts().fulfilled();
  return ok_status();
}

}  // namespace kvikk
