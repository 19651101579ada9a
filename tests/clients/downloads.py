"""FastMCP's client over standard input and output: lists, downloads and syncs skills, which `vault verify` then judges.

Arguments: the program `vault`, and a home whose vault has skills."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import fastmcp
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.utilities.skills import download_skill, list_skills, sync_skills

VAULT, HOME = sys.argv[1], Path(sys.argv[2])
ENVIRONMENT = {"HOME": str(HOME), "PATH": os.environ["PATH"]}


def line(name, note):
    print(f"ok      fastmcp {fastmcp.__version__:<10} {name:<22} {note}", flush=True)


def verify(folder, *flags):
    """Runs `vault verify` on a folder and returns its exit code."""
    command = [VAULT, "verify", str(folder), *flags]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, timeout=60).returncode


async def walk():
    async with Client(StdioTransport(VAULT, ["mcp"], env=ENVIRONMENT)) as client:
        assert len(await client.list_tools()) >= 10
        templates = await client.list_resource_templates()
        assert [t.uri_template if hasattr(t, "uri_template") else t.uriTemplate for t in templates] == ["skill://{owner}/{name}/{+path}"]
        line("templates", "one")
        skills = await list_skills(client)
        names = [skill.name for skill in skills]
        assert len(names) >= 5, names
        line("list_skills", f"{len(names)} skills")
        one = await download_skill(client, names[0], HOME / "one")
        all_of_them = await sync_skills(client, HOME / "all")
        assert len(all_of_them) == len(names)
        line("download, sync", f"{len(all_of_them)} folders")
        for folder in [one, *all_of_them]:
            name = folder.relative_to(HOME / ("one" if folder == one else "all"))
            manifest = (await client.read_resource(f"skill://{name}/.vault/manifest.json"))[0].text
            json.loads(manifest)
            (folder / ".vault").mkdir()
            (folder / ".vault" / "manifest.json").write_text(manifest)
            assert verify(folder) == 0, folder
            (folder / "SKILL.md").open("a").write("more\n")
            assert verify(folder) == 6, folder
        line("vault verify", "each as it was signed, and none with a byte more")


asyncio.run(asyncio.wait_for(walk(), 120))
