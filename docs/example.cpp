// A program of its own that asks a model one question. It uses kvikk as a library: the headers in
// include/kvikk/ and nothing else.
//
//   example MODEL.gguf "Why is the sky blue?"

#include <cstdio>
#include <string>
#include <utility>

#include "kvikk/engine.h"

namespace {

int fail(const kvikk::Status& status) {
  std::fprintf(stderr, "example: %s\n", status.message().c_str());
  return status.code() == kvikk::StatusCode::kInvalidArgument ? 2 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: example MODEL QUESTION\n");
    return 2;
  }
  kvikk::EngineOptions options;
  options.context = 512;  // the default is all that the model was trained for
  auto engine = kvikk::Engine::open(argv[1], options);
  if (!engine.ok()) return fail(engine.status());

  auto prompt = (*engine)->encode_chat({{"user", argv[2]}});
  if (!prompt.ok()) prompt = (*engine)->encode(argv[2]);  // a base model continues the text
  if (!prompt.ok()) return fail(prompt.status());

  kvikk::Request request;
  request.tokens = std::move(*prompt);
  request.max_tokens = 64;
  request.sampling.seed = 1;
  request.on_chunk = [](const kvikk::Chunk& chunk) {
    std::fwrite(chunk.text.data(), 1, chunk.text.size(), stdout);
    std::fflush(stdout);
  };
  const auto answer = (*engine)->complete(std::move(request));
  if (!answer.ok()) return fail(answer.status());
  std::printf("\n");
  std::fprintf(stderr, "%zu tokens, ended by %s\n", answer->tokens.size(),
               kvikk::finish_reason_name(answer->reason));
  return 0;
}
