"""The passes: one file each, one public function each; `tile_compiler/pipeline.py` states their order."""
