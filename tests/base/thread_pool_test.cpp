#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

namespace kvikk {
namespace {

TEST(ThreadPool, EveryIndexOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (size_t count : {0u, 1u, 2u, 7u, 1000u}) {
      std::vector<std::atomic<int>> hits(count);
      pool.parallel_for(count, [&](size_t i, int) { hits[i].fetch_add(1); });
      for (auto& hit : hits) EXPECT_EQ(hit.load(), 1);
    }
  }
}

TEST(ThreadPool, ManyShortPhasesStayOrdered) {
  ThreadPool pool(3);
  std::vector<int> value(3, 0);
  for (int phase = 0; phase < 1000; ++phase) {
    pool.run([&](int thread) { value[static_cast<size_t>(thread)] += 1; });
  }
  for (int v : value) EXPECT_EQ(v, 1000);
}

// A phase sees all that the one before wrote, in whichever thread: the barrier is a real one.
TEST(ThreadPool, APhaseSeesWhatTheLastOneWrote) {
  ThreadPool pool(3);
  std::vector<int> ring(3, 0);
  for (int phase = 0; phase < 1000; ++phase) {
    std::vector<int> next(3, 0);
    pool.run([&](int thread) {
      next[static_cast<size_t>(thread)] = ring[static_cast<size_t>((thread + 1) % 3)] + 1;
    });
    ring = next;
  }
  for (int v : ring) EXPECT_EQ(v, 1000);
}

TEST(ThreadPool, EachThreadHasItsNumber) {
  ThreadPool pool(4);
  EXPECT_EQ(pool.size(), 4);
  std::vector<std::thread::id> ids(4);
  pool.run([&](int thread) { ids[static_cast<size_t>(thread)] = std::this_thread::get_id(); });
  EXPECT_EQ(ids[0], std::this_thread::get_id()) << "the caller takes part";
  EXPECT_EQ(std::set<std::thread::id>(ids.begin(), ids.end()).size(), 4u);
}

TEST(ThreadPool, WakesAfterItWentToSleep) {
  ThreadPool pool(2);
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::atomic<int> ran{0};
    pool.run([&](int) { ran.fetch_add(1); });
    EXPECT_EQ(ran.load(), 2);
  }
}

TEST(ThreadPool, ALogSaysWhoWorkedWhen) {
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    PhaseLog log(threads, 3);
    pool.parallel_for(8, [](size_t, int) {});
    pool.set_log(&log);
    pool.label("first");
    pool.run([](int) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
    pool.label("second");
    pool.parallel_for(8, [](size_t, int) {});
    pool.parallel_for(1, [](size_t, int) {});  // on the calling thread alone
    EXPECT_TRUE(log.full());
    pool.parallel_for(8, [](size_t, int) {});  // finds the log full
    pool.set_log(nullptr);
    pool.run([](int) {});
    ASSERT_EQ(log.phases().size(), 3u);
    EXPECT_STREQ(log.phases()[0].label, "first");
    EXPECT_STREQ(log.phases()[1].label, "second");
    EXPECT_STREQ(log.phases()[2].label, "second");
    for (int t = 0; t < threads; ++t) {
      const PhaseLog::Piece piece = log.piece(0, t);
      EXPECT_GE(piece.end - piece.begin, 2000000);
      EXPECT_GE(piece.begin, log.phases()[0].begin);
      EXPECT_LE(piece.end, log.phases()[0].end);
      if (t > 0) {
        EXPECT_EQ(log.piece(2, t).begin, log.piece(2, t).end);
      }
    }
    EXPECT_LE(log.phases()[0].end, log.phases()[1].begin);
    EXPECT_LE(log.piece(2, 0).begin, log.piece(2, 0).end);
  }
}

TEST(ThreadPool, EndsWhetherItWorkedOrNot) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(3);
    if (i % 2 == 0) pool.run([](int) {});
  }
}

}  // namespace
}  // namespace kvikk
