#pragma once
// What `kvikk bench serve` asks a server: prompts of given lengths that share beginnings, at given
// times, made up or as a trace of real traffic has them.

#include <cstdint>
#include <string>
#include <vector>

#include "load_client.h"
#include "shell.h"

namespace kvikk {

struct LoadOptions {
  std::string url = "http://127.0.0.1:8080";
  std::string model;
  std::string key;
  std::string ca_file;
  std::vector<int32_t> clients = {8};
  int32_t requests = 32;
  int32_t prompt = 256;
  int32_t shared = 128;
  int32_t long_prompt = 0;
  int32_t answer = 64;
  double rate = 0;
  int32_t burst = 1;
  std::string trace;
  double trace_length = 1;
  double trace_speed = 1;
  double ttft_ms = 2000;
  double tpot_ms = 200;
  int32_t timeout_seconds = 600;
  int32_t seed = 1;

  template <class V>
  void visit(V&& v) {
    v(url, "url", 1, 2048, "the server, http[s]://HOST:PORT: any of the OpenAI API");
    v(model, "model", 0, 4096, "that requests name; some servers need one");
    v(key, "key", 0, 512, "API key");
    v(ca_file, "ca_file", 0, 4096,
      "https: trust certificates of these signers (PEM), not the system's");
    v(clients, "clients", 1, 4096, "so many ask, each again when it was answered; a list: runs");
    v(requests, "requests", 1, 1000000, "in a run");
    v(prompt, "prompt", 1, 1 << 20, "tokens of a prompt");
    v(shared, "shared", 0, 1 << 20, "of them, the same in all prompts");
    v(long_prompt, "long_prompt", 0, 1 << 20, "tokens of every eighth prompt; 0 = as others");
    v(answer, "answer", 1, 1 << 20, "tokens of an answer, at most");
    v(rate, "rate", 0.0, 1e6, "requests a second at random times (Poisson), instead of clients");
    v(burst, "burst", 1, 100000, "with --rate: so many come at once");
    v(trace, "trace", 0, 4096, "times and lengths from this file: Mooncake's .jsonl, Azure's .csv");
    v(trace_length, "trace_length", 1e-6, 1e3, "multiplies the trace's lengths");
    v(trace_speed, "trace_speed", 1e-6, 1e6, "the trace runs so much faster");
    v(ttft_ms, "ttft_ms", 0.0, 1e9, "goodput: the first token comes within so long ..");
    v(tpot_ms, "tpot_ms", 0.0, 1e9, ".. and then one within so long on average");
    v(timeout_seconds, "timeout_seconds", 1, 86400, "for a client to hear something");
    v(seed, "seed", 0, 1 << 30, "of times and texts");
  }
};

// One request as it is planned, in tokens.
struct LoadShape {
  struct Block {
    uint64_t id = 0;  // the same id is the same text
    size_t tokens = 0;
  };
  double at_seconds = 0;
  std::vector<Block> blocks;  // of the prompt
  size_t answer_tokens = 0;
};

// Errors: kInvalidArgument, those of the trace's file.
Result<std::vector<LoadShape>> plan_load(Shell& shell, const LoadOptions& options);

// The JSON of a request. `tokens_per_word` is what the server's model makes of a word.
std::string load_body(const LoadOptions& options, const LoadShape& shape, double tokens_per_word);

}  // namespace kvikk
