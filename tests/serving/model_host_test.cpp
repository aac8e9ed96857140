// Models that come and go: a load keeps nobody waiting but those who want that model, memory has a
// limit, nothing in use is taken away, everybody hears. ThreadSanitizer runs this too.

#include "serving/model_host.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace kvikk {
namespace {

constexpr auto kWait = std::chrono::seconds(120);
constexpr size_t kMib = size_t{1} << 20;

Result<std::unique_ptr<Engine>> open_engine(size_t) {
  EngineOptions options;
  options.context = 256;
  options.parallel = 2;
  options.threads = 1;
  return Engine::open(std::string(KVIKK_TEST_DATA) + "/models/llama/model-q4_0.gguf", options);
}

// A door that is shut until somebody opens it.
class Door {
 public:
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    wake_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    knocked_ = true;
    EXPECT_TRUE(wake_.wait_for(lock, kWait, [&] { return open_; }));
  }

  // Somebody waits before it.
  bool knocked() {
    std::lock_guard lock(mutex_);
    return knocked_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool open_ = false;
  bool knocked_ = false;
};

void wait_until(const std::function<bool()>& reached) {
  const auto end = std::chrono::steady_clock::now() + kWait;
  while (!reached() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(reached());
}

ServedModel served(const std::string& name, size_t weight_bytes = kMib) {
  ServedModel model;
  model.name = name;
  model.weight_bytes = weight_bytes;
  model.open = open_engine;
  return model;
}

ModelHost::Options options(size_t memory_bytes_max = 0) {
  ModelHost::Options options;
  options.memory_bytes_max = memory_bytes_max;
  options.deliver = [](std::function<void()> task) { task(); };
  options.note = [](const std::string&) {};
  return options;
}

// What take() gives, now or later.
struct Taken {
  std::mutex mutex;
  std::optional<Result<ModelHost::Lease>> result;

  bool there() {
    std::lock_guard lock(mutex);
    return result.has_value();
  }
  void set(Result<ModelHost::Lease> value) {
    std::lock_guard lock(mutex);
    result = std::move(value);
  }
  // Waits for it and gives it away.
  Result<ModelHost::Lease> get() {
    wait_until([&] { return there(); });
    std::lock_guard lock(mutex);
    Result<ModelHost::Lease> value = std::move(*result);
    result = Result<ModelHost::Lease>(cancelled("was given away"));
    return value;
  }
};

std::shared_ptr<Taken> take(ModelHost& host, size_t model) {
  auto taken = std::make_shared<Taken>();
  auto now = host.take(model, [taken](Result<ModelHost::Lease> lease) { taken->set(lease); });
  if (now.has_value()) taken->set(std::move(*now));
  return taken;
}

struct Counter : JobListener {
  std::atomic<size_t> tokens{0};
  std::atomic<bool> done{false};
  void on_token(size_t, const TokenEvent&) override { ++tokens; }
  void on_done(size_t, Answer) override { done = true; }
};

// A request that answers `max_tokens` tokens; the lease ends with it.
std::shared_ptr<Counter> ask(const ModelHost::Lease& lease, size_t max_tokens) {
  auto counter = std::make_shared<Counter>();
  Request request;
  request.tokens = {1, 2, 3};
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.ignore_end_of_generation = true;
  EXPECT_TRUE(lease->runner->submit({request}, counter, true).ok());
  return counter;
}

TEST(ModelHost, FindsModelsByEveryName) {
  std::vector<ServedModel> models = {served("a"), served("b")};
  models[0].names = {"alias"};
  models[1].path = "/models/b.gguf";
  auto host = ModelHost::start(models, options());
  ASSERT_TRUE(host.ok());
  EXPECT_EQ((*host)->find("a"), 0u);
  EXPECT_EQ((*host)->find("alias"), 0u);
  EXPECT_EQ((*host)->find("b"), 1u);
  EXPECT_EQ((*host)->find("/models/b.gguf"), 1u);
  EXPECT_FALSE((*host)->find("c").has_value());
  models[1].names = {"a"};
  const auto twice = ModelHost::start(models, options());
  EXPECT_EQ(twice.status().code(), StatusCode::kInvalidArgument);
}

TEST(ModelHost, TokensOfOthersComeWhileAModelIsLoaded) {
  Door door;
  std::atomic<bool> loading{false};
  std::vector<ServedModel> models = {served("a"), served("b")};
  models[1].open = [&](size_t bytes) {
    loading = true;
    door.pass();
    return open_engine(bytes);
  };
  auto host = ModelHost::start(models, options());
  ASSERT_TRUE(host.ok());
  const auto slow = take(**host, 1);
  const auto also = take(**host, 1);
  wait_until([&] { return loading.load(); });
  {
    const auto lease = take(**host, 0)->get();
    ASSERT_TRUE(lease.ok());
    const auto counter = ask(*lease, 40);
    wait_until([&] { return counter->done.load(); });
    EXPECT_EQ(counter->tokens, 40u);
  }
  EXPECT_FALSE(slow->there());
  EXPECT_EQ((*host)->status(1).load.waiting, 2u);
  EXPECT_FALSE((*host)->status(1).loaded);
  door.open();
  EXPECT_TRUE(slow->get().ok());
  EXPECT_TRUE(also->get().ok());
  EXPECT_EQ((*host)->status(1).loads, 1u);
}

TEST(ModelHost, TheModelUsedLongestAgoMakesRoom) {
  // Two of these fit, three do not: as they say before they are loaded, and as they are.
  auto probe = ModelHost::start({served("a")}, options());
  ASSERT_TRUE(probe.ok());
  const size_t bytes = (*probe)->status(0).memory_bytes;
  ASSERT_GT(bytes, 0u);
  const size_t weights = bytes * 9 / 10;
  auto host = ModelHost::start({served("a", weights), served("b", weights), served("c", weights)},
                               options(bytes * 5 / 2));
  ASSERT_TRUE(host.ok());
  // What the first two say is more than what fits: the cache is bounded by what their own weights
  // leave, and the first goes. From here on what they take is known.
  EXPECT_TRUE(take(**host, 1)->get().ok());
  EXPECT_TRUE(take(**host, 0)->get().ok());
  EXPECT_TRUE(take(**host, 1)->get().ok());
  EXPECT_TRUE((*host)->status(0).loaded);
  EXPECT_TRUE((*host)->status(1).loaded);
  EXPECT_TRUE(take(**host, 2)->get().ok());
  EXPECT_FALSE((*host)->status(0).loaded);
  EXPECT_EQ((*host)->status(0).memory_bytes, 0u);
  EXPECT_TRUE(take(**host, 0)->get().ok());
  EXPECT_TRUE(take(**host, 1)->get().ok());
  EXPECT_TRUE((*host)->status(0).loaded);
  EXPECT_TRUE((*host)->status(1).loaded);
  EXPECT_FALSE((*host)->status(2).loaded);
}

TEST(ModelHost, AModelInUseFinishesAndThenMakesRoom) {
  auto host = ModelHost::start({served("a"), served("b")}, options(2 * kMib));
  ASSERT_TRUE(host.ok());
  auto lease = take(**host, 0)->get();
  ASSERT_TRUE(lease.ok());
  const auto other = take(**host, 1);
  // Whoever comes now waits behind it, or the other might wait for ever.
  const auto late = [&] {
    std::shared_ptr<Taken> taken;
    wait_until([&] {
      taken = take(**host, 0);
      return !taken->there();
    });
    return taken;
  }();
  EXPECT_FALSE(other->there());
  const auto counter = ask(*lease, 20);
  wait_until([&] { return counter->done.load(); });
  EXPECT_EQ(counter->tokens, 20u);
  EXPECT_FALSE(other->there());
  *lease = nullptr;
  EXPECT_TRUE(other->get().ok());
  EXPECT_TRUE(late->get().ok());
  EXPECT_EQ((*host)->status(0).loads, 2u);
  EXPECT_GT((*host)->status(0).load.stats.steps, 0u);  // of the first time
}

TEST(ModelHost, AModelThatNobodyUsesIsUnloaded) {
  ModelHost::Options brief = options();
  brief.idle_max = std::chrono::milliseconds(50);
  auto host = ModelHost::start({served("a")}, brief);
  ASSERT_TRUE(host.ok());
  wait_until([&] { return !(*host)->status(0).loaded; });
  auto lease = take(**host, 0)->get();
  ASSERT_TRUE(lease.ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_TRUE((*host)->status(0).loaded);  // it is in use
  *lease = nullptr;
  wait_until([&] { return !(*host)->status(0).loaded; });
  EXPECT_EQ((*host)->status(0).loads, 2u);
}

TEST(ModelHost, ALoadThatFailsIsToldAndTriedAgain) {
  std::atomic<int> tries{0};
  std::vector<ServedModel> models = {served("a"), served("b")};
  models[1].open = [&](size_t bytes) -> Result<std::unique_ptr<Engine>> {
    if (++tries == 1) return damaged("b.gguf: no");
    return open_engine(bytes);
  };
  auto host = ModelHost::start(models, options());
  ASSERT_TRUE(host.ok());
  EXPECT_EQ(take(**host, 1)->get().status().code(), StatusCode::kDamaged);
  EXPECT_TRUE(take(**host, 1)->get().ok());
  EXPECT_EQ(tries, 2);
}

TEST(ModelHost, SaysWhichModelDoesNotFit) {
  const auto host = ModelHost::start({served("a"), served("big", 5 * kMib)}, options(4 * kMib));
  EXPECT_EQ(host.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(host.status().message().find("'big' has 5 MiB"), std::string::npos)
      << host.status().message();
}

TEST(ModelHost, BoundsThoseWhoWaitAndTellsThemOfTheEnd) {
  Door door;
  std::vector<ServedModel> models = {served("a"), served("b"), served("c")};
  models[1].open = [&](size_t bytes) {
    door.pass();
    return open_engine(bytes);
  };
  ModelHost::Options few = options();
  few.queue_max = 3;
  auto host = ModelHost::start(models, few);
  ASSERT_TRUE(host.ok());
  std::vector<std::shared_ptr<Taken>> waiting;
  for (int i = 0; i < 4; ++i) waiting.push_back(take(**host, 1));
  wait_until([&] { return door.knocked(); });  // what has not begun by the end is cancelled
  EXPECT_EQ(take(**host, 1)->get().status().code(), StatusCode::kExhausted);
  const auto never = take(**host, 2);
  std::thread stopper([&] { (*host)->stop(); });
  wait_until([&] {
    const auto late = take(**host, 0);
    return late->get().status().code() == StatusCode::kCancelled;
  });
  door.open();
  stopper.join();
  for (const auto& taken : waiting) EXPECT_TRUE(taken->get().ok());
  EXPECT_EQ(never->get().status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace kvikk
