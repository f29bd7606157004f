"""Hooks of mkdocs: pages from outside of docs/, and links to such files."""

import os
import re

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCE = "https://github.com/belfryhq/belfry/blob/main/"

# Pages of the site whose files are outside of docs/.
OUTSIDE = {"index.md": "README.md", "zh/index.md": "README.zh-CN.md", "helm.md": "deploy/helm/belfry/README.md"}

# Links of Markdown and images, except those to other sites and within the page.
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?(\))")


def on_files(files, config):
    for page, path in OUTSIDE.items():
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            files.append(File.generated(config, page, content=f.read()))
    return files


def on_page_markdown(markdown, page, **_):
    """Rewrites links that are relative to a file of the repository. Links to a page of the site lead there, others to the repository."""
    here = page.file.src_uri
    path = OUTSIDE.get(here, "docs/" + here)
    pages = {source: site for site, source in OUTSIDE.items()}

    def rewrite(m):
        target = os.path.normpath(os.path.join(os.path.dirname(path), m[2])).replace(os.sep, "/")
        if not os.path.exists(os.path.join(ROOT, target)):
            raise PluginError(f"{path}: the link to {m[2]} is broken")
        if target.startswith("docs/") and not target.endswith(".py") and not target.startswith("docs/trial"):
            site = target.removeprefix("docs/")
        else:
            site = pages.get(target)
        if site is None:
            return m[1] + SOURCE + target + (m[3] or "") + m[4]
        return m[1] + os.path.relpath(site, os.path.dirname(here) or ".").replace(os.sep, "/") + (m[3] or "") + m[4]

    return LINK.sub(rewrite, markdown)
