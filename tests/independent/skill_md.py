"""The head of a SKILL.md, as far as the vectors show it: no page describes it. Flow and block maps of YAML, flow lists and one-line texts."""
import re

from reader import TYPES, need, refusing


def value_of(text):
    """The value at the beginning of a line's text, and what follows it."""
    text = text.lstrip()
    if text[:1] in ("[", "{"):
        close, items = {"[": "]", "{": "}"}[text[0]], []
        text = text[1:].lstrip()
        while text[:1] != close:
            item, text = value_of(text)
            if close == "}":
                need("yaml", text.startswith(":"), "skill_frontmatter")
                content, text = value_of(text[1:])
                item = item, content
            items.append(item)
            text = text.lstrip()
            need("yaml", text[:1] in (",", close) and text, "skill_frontmatter")
            text = text[1:].lstrip() if text[0] == "," else text
        return unique(items) if close == "}" else items, text[1:].lstrip()
    quoted = re.match(r'"([^"\\]*)"|\'([^\']*)\'', text)
    if quoted:
        return quoted[1] if quoted[1] is not None else quoted[2], text[quoted.end():].lstrip()
    plain = re.match(r"[^,\[\]{}:]*(?::[^ ,\[\]{}]+[^,\[\]{}:]*)*", text)[0]
    return {"true": True, "false": False, "null": None, "": None}.get(plain.strip(), plain.strip()), text[len(plain):].lstrip()


def unique(items):
    need("yaml", len({name for name, _ in items}) == len(items), "skill_frontmatter")
    return dict(items)


def block(lines):
    """A map of lines of one depth, each with the deeper lines below it."""
    items = []
    while lines:
        name, colon, rest = lines.pop(0).partition(":")
        need("yaml", colon and not name.startswith(" "), "skill_frontmatter")
        below = []
        while lines and lines[0].startswith(" "):
            below.append(lines.pop(0))
        depth = len(below[0]) - len(below[0].lstrip()) if below else 0
        rest = rest.strip()
        if below:
            content = block([line[depth:] for line in below])
        elif rest[:1] in ("[", "{", '"', "'"):
            content = value_of(rest)[0]
        else:
            content = {"true": True, "false": False, "": None}.get(rest, rest)
        items.append((name, content))
    return unique(items)


def listed(content, split):
    return [word.strip() for word in content.split(split) if word.strip()] if isinstance(content, str) else content or []


def action_of(action):
    known = action if isinstance(action, dict) else {}
    need("bin", isinstance(known.get("command"), str) and isinstance(known.get("args", []), list), "skill_bin")
    return {"command": known["command"], "args": known.get("args", []), "cwd": known.get("cwd", "."), "description": known.get("description"),
            "requires_tty": known.get("requires-tty", known.get("requires_tty", False))}


def read(data):
    head = re.match("---\n(.*?\n)---\n", data.decode(), re.DOTALL)
    need("frontmatter", head, "skill_frontmatter")
    top = block([re.sub(r"(^|\s)#.*", "", line).rstrip() for line in head[1].splitlines()])
    find = lambda *names: next((part[name] for part in (top, top.get("metadata") or {}) for name in names if name in part), None)
    need("name", isinstance(top.get("name"), str), "skill_name")
    need("description", isinstance(top.get("description"), str), "skill_description")
    actions = find("bin") or {}
    need("bin", isinstance(actions, dict), "skill_bin")
    with refusing("skill_bin"):
        need("bin name", all(TYPES["action name"].fullmatch(name) for name in actions))
        actions = {name: action_of(action) for name, action in actions.items()}
    return {"name": top["name"], "description": top["description"], "license": find("license"), "compatibility": find("compatibility"),
            "allowed_tools": listed(find("allowed-tools"), " "), "metadata": top.get("metadata") or {}, "tags": listed(find("tags"), ","),
            "categories": listed(find("categories", "category"), ","), "when_to_use": find("when_to_use", "when-to-use"),
            "when_not_to_use": find("when_not_to_use", "when-not-to-use"), "agents": listed(find("agents"), ","), "actions": actions,
            "requires_secrets": find("requires-secrets") or [], "capabilities": find("capabilities")}
