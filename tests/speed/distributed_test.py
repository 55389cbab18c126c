import json

import speed.distributed as distributed


def test_measurements(tmp_path):
    """That everything runs."""
    output = tmp_path / "rows.json"
    sizes = ["--size", "tiny", "--vocabularies", "2000", "--processes", "1,2", "--steps", "1"]
    distributed.main([*sizes, "--batch-size", "8", "--samples", "64", "--output", str(output)])
    alone, together = json.loads(output.read_text())["rows"]
    assert alone["words_per_second"] > 0 and together["words_per_second"] > 0
    assert together["bytes_per_step"] > 0
