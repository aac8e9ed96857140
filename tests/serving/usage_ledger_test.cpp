// What was used is in the file, whatever happens to the server and whoever reads meanwhile.

#include "serving/usage_ledger.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

namespace kvikk {
namespace {

class UsageLedgerTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("kvikk-ledger-" + std::to_string(::getpid()) + "-" +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ / "usage.db"; }

  std::filesystem::path folder_;
};

UsageCounts counts(int64_t prompt, int64_t cached, int64_t completion) {
  return {1, prompt, cached, completion};
}

TEST_F(UsageLedgerTest, AddsUpFromManyThreadsAndOverRestarts) {
  for (int round = 1; round <= 2; ++round) {
    auto ledger = UsageLedger::open(path());
    ASSERT_TRUE(ledger.ok()) << ledger.status().message();
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 50; ++i) {
          EXPECT_TRUE((*ledger)->add({"ann", "m", "2026-01-01"}, counts(10, 4, 3)));
          EXPECT_TRUE((*ledger)->add({"bob", "m", "2026-01-02"}, counts(1, 0, 1)));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const auto rows = (*ledger)->read("ann");  // also what is not written yet
    ASSERT_TRUE(rows.ok());
    ASSERT_EQ(rows->size(), 1u);
    EXPECT_EQ(rows->front().key.day, "2026-01-01");
    EXPECT_EQ(rows->front().counts,
              (UsageCounts{round * 200, round * 2000, round * 800, round * 600}));
  }
  auto ledger = UsageLedger::open(path());
  ASSERT_TRUE(ledger.ok());
  EXPECT_EQ((*ledger)->read("bob")->front().counts, (UsageCounts{400, 400, 0, 400}));
  EXPECT_TRUE((*ledger)->read("nobody")->empty());
}

TEST_F(UsageLedgerTest, NamesAreOnlyNames) {
  auto ledger = UsageLedger::open(path());
  ASSERT_TRUE(ledger.ok());
  const std::string name = "'; DROP TABLE usage; --";
  EXPECT_TRUE((*ledger)->add({name, "m", "d"}, counts(1, 2, 3)));
  EXPECT_EQ((*ledger)->read(name)->size(), 1u);
}

TEST_F(UsageLedgerTest, WaitsForAProgramThatHoldsTheFile) {
  auto ledger = UsageLedger::open(path());
  ASSERT_TRUE(ledger.ok());
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path().c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  EXPECT_TRUE((*ledger)->add({"ann", "m", "d"}, counts(1, 2, 3)));  // does not wait
  ASSERT_EQ(sqlite3_exec(other, "COMMIT", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(other);
  ledger->reset();
  auto again = UsageLedger::open(path());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)->read("ann")->size(), 1u);
}

TEST_F(UsageLedgerTest, RefusesWhatIsNoLedger) {
  std::ofstream(path()) << std::string(4096, 'x');
  const auto noise = UsageLedger::open(path());
  EXPECT_EQ(noise.status().code(), StatusCode::kDamaged);
  EXPECT_NE(noise.status().message().find("usage.db"), std::string::npos);
  std::filesystem::remove(path());
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path().c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "CREATE TABLE usage (other)", nullptr, nullptr, nullptr),
            SQLITE_OK);
  sqlite3_close(other);
  EXPECT_EQ(UsageLedger::open(path()).status().code(), StatusCode::kDamaged);
  EXPECT_EQ(UsageLedger::open(folder_ / "none" / "usage.db").status().code(), StatusCode::kIo);
}

}  // namespace
}  // namespace kvikk
