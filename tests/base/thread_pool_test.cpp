#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
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
  for (int phase = 0; phase < 20000; ++phase) {
    pool.run([&](int thread) { value[static_cast<size_t>(thread)] += 1; });
  }
  for (int v : value) EXPECT_EQ(v, 20000);
}

}  // namespace
}  // namespace kvikk
