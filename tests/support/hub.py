"""A stand-in for the hub of Hugging Face."""

from typing import Any, List


class Hub:
    """In place of huggingface_hub's `HfApi`."""

    calls: List[Any] = []
    files: List[str] = []

    def create_repo(self, repo_id: str, **settings: Any) -> str:
        name = repo_id if "/" in repo_id else f"user/{repo_id}"
        Hub.calls.append(("create", repo_id, settings))
        return f"https://huggingface.co/{name}"

    def list_repo_files(self, repo_id: str, **settings: Any) -> List[str]:
        return Hub.files

    def upload_folder(self, **settings: Any) -> None:
        Hub.calls.append(("upload", settings))
