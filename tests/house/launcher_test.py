"""./kvikk and ./test with stand-ins for cmake, apt-get and the rest, in a folder with spaces."""

import os
import resource
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# The real programs that the scripts may use; nothing else is in PATH.
REAL = ("awk basename bash cat chmod cut df dirname env find flock git grep head mkdir mv nproc "
        "readlink sed sh sleep sort touch tr").split()

STAND_INS = {
    # Configures and "builds" a program that prints its arguments; BOX/build-seconds makes it slow.
    "cmake": """
        case "$*" in
          *--preset*)
            echo "-- configuring"
            mkdir -p build
            touch build/build.ninja
            echo "CMAKE_HOME_DIRECTORY:INTERNAL=$(pwd -P)" >build/CMakeCache.txt
            case "$*" in
              *KVIKK_BENCH=ON*) echo KVIKK_BENCH:BOOL=ON >>build/CMakeCache.txt ;;
            esac ;;
          --build*)
            echo "[1/1] building"
            sleep "$(cat "$BOX/build-seconds" 2>/dev/null || echo 0)"
            [ ! -e "$BOX/build-fails" ] || exit 1
            printf '#!/bin/sh\\nprintf "<%%s>" "$@"; echo; exit $KVIKK_EXIT\\n' >"$2/kvikk"
            chmod +x "$2/kvikk" ;;
        esac""",
    "ctest": "echo 100% tests passed",
    "dpkg-query": """
        for name; do
          case $name in -*) ;; *Status*) ;; *)
            grep -qx "$name" "$BOX/missing" 2>/dev/null || printf '%s=installed ' "$name" ;;
          esac
        done""",
    # BOX/no-index: no name is known; BOX/old-index: what it names is no longer to be had.
    "apt-get": """
        case "$*" in
          *-s*install*) [ ! -e "$BOX/no-index" ]; exit ;;
        esac
        echo "frontend $DEBIAN_FRONTEND" >>"$BOX/calls"
        echo "Reading package lists..."
        case "$*" in
          *install*)
            for trouble in no-index old-index no-network; do
              [ ! -e "$BOX/$trouble" ] || { echo "E: $trouble"; exit 100; }
            done
            : >"$BOX/missing" ;;
          *update*)
            [ ! -e "$BOX/no-network" ] || exit 100
            mv "$BOX"/*-index "$BOX/index" ;;
        esac""",
    "id": 'cat "$BOX/uid"',
}


def children_seconds():
    """Processor time of the processes started so far: other work on the machine does not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Launcher(unittest.TestCase):
    def setUp(self):
        self.box = tempfile.mkdtemp(prefix="kvikk launcher ")
        self.addCleanup(shutil.rmtree, self.box)
        self.repository = os.path.join(self.box, "a copy of kvikk")
        for name in ("kvikk", "test", "packages.txt", "tools/setup.sh"):
            target = os.path.join(self.repository, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(os.path.join(ROOT, name), target)
        os.mkdir(os.path.join(self.repository, "src"))
        self.write("a copy of kvikk/src/a.cpp", "int a;\n")
        self.write("uid", "0\n")
        self.bin = os.path.join(self.box, "bin")
        os.mkdir(self.bin)
        for name in REAL:
            os.symlink(shutil.which(name), os.path.join(self.bin, name))
        for name, body in STAND_INS.items():
            path = self.write("bin/" + name,
                              f'#!/bin/sh\necho "{name} $*" >>"$BOX/calls"\n{body}\n')
            os.chmod(path, 0o755)
        self.environment = {"PATH": self.bin, "BOX": self.box, "KVIKK_EXIT": "0",
                            "HOME": self.box}

    def write(self, name, text):
        path = os.path.join(self.box, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def start(self, *arguments, script="kvikk", cwd=None, **environment):
        program = script if script.startswith("/") else os.path.join(self.repository, script)
        return subprocess.Popen(
            [program, *arguments], cwd=cwd or self.box, env={**self.environment, **environment},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True)

    def run_it(self, *arguments, **options):
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def calls(self, name):
        try:
            with open(os.path.join(self.box, "calls"), encoding="utf-8") as file:
                return [line.rstrip() for line in file if line.startswith(name + " ")]
        except FileNotFoundError:
            return []

    def apt_verbs(self):
        """What was asked of apt-get, without simulations."""
        return [next(word for word in call.split() if word in ("install", "update"))
                for call in self.calls("apt-get") if " -s " not in call]

    def forget_calls(self):
        self.write("calls", "")

    def test_builds_then_runs_and_keeps_standard_output_clean(self):
        code, out, err = self.run_it("run", "two words", "", "*")
        self.assertEqual((code, out), (0, "<run><two words><><*>\n"), err)
        self.assertEqual(len(self.calls("cmake")), 2)
        self.assertIn("configuring", err)
        self.assertIn("[1/1] building", err)

    def test_exit_code_is_the_programs(self):
        self.assertEqual(self.run_it(KVIKK_EXIT="42")[0], 42)

    def test_second_start_goes_straight_to_the_program(self):
        self.run_it()
        self.forget_calls()
        times = []
        for _ in range(10):
            start = children_seconds()
            code, out, err = self.run_it("again")
            times.append(children_seconds() - start)
            self.assertEqual((code, out, err), (0, "<again>\n", ""))
        for name in STAND_INS:
            self.assertEqual(self.calls(name), [], "nothing is asked of " + name)
        self.assertLess(min(times), 0.05)

    def test_through_symlinks_and_from_another_folder(self):
        other = os.path.join(self.box, "other folder")
        os.mkdir(other)
        os.symlink("../a copy of kvikk/kvikk", os.path.join(other, "first"))
        os.symlink("first", os.path.join(other, "second"))
        code, out, err = self.run_it("x", script=os.path.join(other, "second"), cwd=other)
        self.assertEqual((code, out), (0, "<x>\n"), err)
        self.assertFalse(os.path.exists(os.path.join(other, "build")))

    def test_an_edit_a_new_file_and_a_removed_file_build_again(self):
        self.run_it()
        source = os.path.join(self.repository, "src")
        for change in (lambda: os.utime(os.path.join(source, "a.cpp")),
                       lambda: self.write("a copy of kvikk/src/b.cpp", ""),
                       lambda: os.remove(os.path.join(source, "b.cpp"))):
            self.forget_calls()
            time.sleep(0.02)  # more than the file system's clock tick
            change()
            self.run_it()
            self.assertEqual(len(self.calls("cmake")), 1, "builds without configuring")
            self.forget_calls()
            self.run_it()
            self.assertEqual(self.calls("cmake"), [])

    def test_a_commit_builds_again(self):
        git = ["git", "-C", self.repository, "-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run([*git, "init", "-q"], check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "one"], check=True)
        self.run_it()
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "two"], check=True)
        self.forget_calls()
        self.run_it()
        self.assertEqual(len(self.calls("cmake")), 1)

    def test_missing_packages_are_named_and_installed(self):
        self.write("missing", "cmake\nlibzip-dev\nclang\n")
        code, out, err = self.run_it("x")
        self.assertEqual((code, out), (0, "<x>\n"), err)
        self.assertRegex(err, r"libzip-dev +unpacks downloaded models")
        self.assertNotIn("second compiler", err, "clang is for ./test alone")
        self.assertEqual(self.apt_verbs(), ["install"])
        self.assertTrue(self.calls("apt-get")[-1].endswith(
            "--no-install-recommends cmake libzip-dev"))
        self.assertEqual(self.calls("frontend"), ["frontend noninteractive"])

    def test_without_root_or_sudo_it_prints_the_one_command(self):
        self.write("missing", "cmake\n")
        self.write("uid", "1000\n")
        code, out, err = self.run_it("x")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("  su - -c \"apt-get update && "
                      "apt-get install -y --no-install-recommends cmake\"\n", err)
        self.assertEqual(self.calls("apt-get") + self.calls("cmake"), [])

    def test_with_sudo_it_uses_it(self):
        os.chmod(self.write("bin/sudo", '#!/bin/sh\n[ "$1" != -n ] || shift\nexec "$@"\n'), 0o755)
        os.symlink(shutil.which("true"), os.path.join(self.bin, "true"))
        self.write("missing", "cmake\n")
        self.write("uid", "1000\n")
        self.assertEqual(self.run_it("x")[:2], (0, "<x>\n"))
        self.assertEqual(self.apt_verbs(), ["install"])

    def test_who_may_not_use_sudo_gets_the_one_command(self):
        os.chmod(self.write("bin/sudo", '#!/bin/sh\necho "not in the sudoers file" >&2\nexit 1\n'),
                 0o755)
        self.write("missing", "cmake\n")
        self.write("uid", "1000\n")
        code, _, err = self.run_it("x")
        self.assertEqual(code, 1)
        self.assertIn('  su - -c "apt-get update', err)
        self.assertEqual(self.calls("apt-get"), [])

    def test_an_old_index_is_read_again_once(self):
        self.write("missing", "cmake\n")
        self.write("old-index", "")
        code, _, err = self.run_it("x")
        self.assertEqual(code, 0, err)
        self.assertEqual(self.apt_verbs(), ["install", "update", "install"])

    def test_a_machine_without_index_reads_it_before_anything_fails(self):
        self.write("missing", "cmake\n")
        self.write("no-index", "")
        code, _, err = self.run_it("x")
        self.assertEqual(code, 0, err)
        self.assertEqual(self.apt_verbs(), ["update", "install"])
        self.assertNotIn("E:", err)

    def test_no_network_is_said(self):
        self.write("missing", "cmake\n")
        self.write("no-network", "")
        code, out, err = self.run_it("x")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("is there a network?", err)
        self.assertEqual(self.calls("cmake"), [])

    def test_a_second_copy_waits_and_does_not_build(self):
        self.write("build-seconds", "1")
        first = self.start("first")
        while not self.calls("cmake"):
            time.sleep(0.01)
        second = self.start("second")
        out, err = second.communicate(timeout=60)
        self.assertEqual((second.returncode, out), (0, "<second>\n"))
        self.assertIn("another copy is building kvikk; waiting for it", err)
        self.assertEqual(first.communicate(timeout=60)[0], "<first>\n")
        self.assertEqual(len(self.calls("cmake")), 2)

    def test_a_running_program_holds_no_lock(self):
        self.run_it()
        path = self.write("a copy of kvikk/build/kvikk", "#!/bin/sh\nsleep 5\n")
        os.chmod(path, 0o755)
        running = self.start()
        lock = os.path.join(self.repository, "build", ".lock")
        self.assertEqual(subprocess.run(["flock", "-n", lock, "true"], check=False).returncode, 0)
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()

    def test_a_failed_build_is_tried_again(self):
        fails = self.write("build-fails", "")
        code, out, err = self.run_it("x")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("the build failed", err)
        os.remove(fails)
        self.assertEqual(self.run_it("x")[:2], (0, "<x>\n"))

    def test_a_full_disk_is_named(self):
        self.write("build-fails", "")
        self.assertNotIn("free in", self.run_it("x")[2])
        os.remove(os.path.join(self.bin, "df"))
        os.chmod(self.write("bin/df", "#!/bin/sh\necho Header; echo d 9 9 3210 99% /\n"), 0o755)
        code, _, err = self.run_it("x")
        self.assertEqual(code, 1)
        self.assertIn(f"Only 3 MB are free in {self.repository}/build.", err)

    def test_interrupt_during_the_build(self):
        slow = self.write("build-seconds", "30")
        process = self.start("x")
        while len(self.calls("cmake")) < 2:
            time.sleep(0.01)
        time.sleep(2)  # until the build sleeps: a shell that is busy otherwise goes on
        start = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - start, 15)  # the build would take 30
        self.assertEqual((process.returncode, out), (130, ""))
        self.assertIn("stopped", err)
        os.remove(slow)
        self.assertEqual(self.run_it("x")[:2], (0, "<x>\n"))

    def test_a_moved_folder_is_configured_anew(self):
        self.run_it()
        moved = os.path.join(self.box, "moved")
        os.rename(self.repository, moved)
        self.repository = moved
        os.utime(os.path.join(moved, "src", "a.cpp"))
        self.forget_calls()
        code, out, err = self.run_it("x")
        self.assertEqual((code, out), (0, "<x>\n"), err)
        self.assertIn("--fresh", self.calls("cmake")[0])

    def test_a_folder_that_cannot_be_written_is_said(self):
        self.write("a copy of kvikk/build", "a file in the way")
        code, out, err = self.run_it("x")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("cannot be written", err)

    def test_the_tests_are_built_and_chosen(self):
        self.write("missing", "clang\n")
        code, out, err = self.run_it(script="test")
        self.assertEqual((code, out), (0, "100% tests passed\n"), err)
        self.assertIn("the second compiler", err)
        self.assertIn("KVIKK_TESTS=ON -DKVIKK_BENCH=ON", self.calls("cmake")[0])
        self.assertIn("--label-exclude ^(large)$", self.calls("ctest")[0])
        self.forget_calls()
        self.run_it("--large", script="test")
        self.assertEqual(len(self.calls("cmake")), 1, "configured once")
        self.assertNotIn("large", self.calls("ctest")[0])
        self.forget_calls()
        self.run_it("-R", "Gguf", "--quick", script="test")
        self.assertIn("^(large|builds)$", self.calls("ctest")[0])
        self.assertTrue(self.calls("ctest")[0].endswith("-R Gguf"))
        self.forget_calls()
        self.assertEqual(self.run_it("x")[1], "<x>\n")
        self.assertEqual(self.calls("cmake"), [], "./kvikk runs what ./test built")

    def test_help_of_test(self):
        code, out, _ = self.run_it("--help", script="test")
        self.assertEqual(code, 0)
        self.assertIn("--large", out)
        self.assertEqual(self.calls("cmake"), [])


class PackageList(unittest.TestCase):
    def test_every_line_has_a_name_a_group_and_a_reason(self):
        with open(os.path.join(ROOT, "packages.txt"), encoding="utf-8") as file:
            lines = [line.split(None, 2) for line in file if not line.startswith("#")]
        self.assertEqual([line for line in lines if len(line) < 3], [])
        self.assertEqual({line[1] for line in lines}, {"run", "test"})
        self.assertEqual(len({line[0] for line in lines}), len(lines))

    def test_scripts_can_be_run(self):
        for name in ("kvikk", "test", ".ci/run", "tools/check_build.sh"):
            self.assertTrue(os.stat(os.path.join(ROOT, name)).st_mode & stat.S_IXUSR, name)


if __name__ == "__main__":
    unittest.main()
