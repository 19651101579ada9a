"""Takes the steps of action.yml as a runner of GitHub does: inputs, variables, files and the commands that it reads from the log."""

import pathlib
import re
import subprocess

import yaml


class Runner:
    """One use of the action in a checkout."""

    def __init__(self, action, folder, place, home):
        self.action, self.folder, self.place, self.home = pathlib.Path(action), folder, place, home
        self.temp, self.summary = place / "temp", place / "summary.md"
        self.temp.mkdir(parents=True)
        self.outputs = {}
        self.summary.touch()

    def run(self, inputs, github):
        """Returns what the steps printed, and the exit code of the first one that failed, else 0."""
        action = yaml.safe_load((self.action / "action.yml").read_text())
        unknown = set(inputs) - set(action["inputs"])
        assert not unknown, f"the action has no input {unknown}"
        values = {name: str(entry.get("default", "")) for name, entry in action["inputs"].items()} | inputs
        contexts = {"inputs": values, "github": {"server_url": "https://git.example", "action_repository": "", **github}, "steps": self.outputs}
        printed = ""
        for step in action["runs"]["steps"]:
            assert set(step) <= {"name", "id", "shell", "env", "run"} and step["shell"] == "bash", f"this test knows no such step: {step}"
            assert "${{" not in step["run"], "the text of a script must not contain an input"
            (self.place / "output").write_text("")
            script = self.place / "step.sh"
            script.write_text(step["run"])
            variables = {name: expand(text, contexts) for name, text in step.get("env", {}).items()}
            ran = subprocess.run(["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)], cwd=self.folder, env=variables | self.variables(),
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            printed += ran.stdout
            for line in (self.place / "output").read_text().splitlines():
                name, _, value = line.partition("=")
                self.outputs[f"{step['id']}.outputs.{name}"] = value
            if ran.returncode:
                return printed, ran.returncode
        return printed, 0

    def variables(self):
        return {"PATH": "/usr/bin:/bin", "HOME": str(self.home), "RUNNER_TEMP": str(self.temp), "LC_ALL": "C.UTF-8", "GITHUB_ACTION_PATH": str(self.action),
                "GITHUB_OUTPUT": str(self.place / "output"), "GITHUB_STEP_SUMMARY": str(self.summary)}

    def output(self, name):
        """An output of the action."""
        declared = yaml.safe_load((self.action / "action.yml").read_text())["outputs"][name]["value"]
        return expand(declared, {"steps": self.outputs})


def expand(text, contexts):
    """The value of a variable. The action uses no expression but the name of an input, a member of `github`, or the output of a step."""
    return re.sub(r"\$\{\{ (\w+)\.([\w.-]+) \}\}", lambda found: contexts[found[1]][found[2]], str(text))


def effective_commands(log):
    """The lines of a log that a runner takes as commands: `::name::` after spaces, or `##[name]` anywhere, except where they are stopped."""
    found, token = [], None
    for line in log.splitlines():
        stripped = line.strip()
        if token is not None:
            if stripped == f"::{token}::":
                token = None
        elif stripped.startswith("::stop-commands::"):
            token = stripped.removeprefix("::stop-commands::")
        elif re.match(r"::[a-z]", stripped) or "##[" in line:
            found.append(line)
    return found
