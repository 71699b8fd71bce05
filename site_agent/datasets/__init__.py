"""Annotated faces: reading and writing them, checks, changes, and faces that are drawn here."""

from site_agent.datasets.check import Finding, check_datasets
from site_agent.datasets.conversion import (
    ANNOTATION_FORMATS,
    ReadingOptions,
    choose_parts,
    copy_images,
    join_datasets,
    read_faces,
    rebox_dataset,
    renumber_parts,
)
from site_agent.datasets.imglab_xml import write_imglab_xml
from site_agent.datasets.landmark_schemes import PART_GROUPS, expand_parts
from site_agent.datasets.part_order import find_model_parts
from site_agent.datasets.records import (
    AnnotatedImage,
    FaceBox,
    FaceDataset,
    dataset_digest,
    image_marks,
    numbered_parts,
    part_names,
    parts_array,
    require_images,
)
from site_agent.datasets.sheets import sheet_paths, write_contact_sheets
from site_agent.datasets.split import by_folder, by_pattern, by_table, site_shares, split_dataset
from site_agent.datasets.statistics import Distribution, dataset_statistics

__all__ = [
    "ANNOTATION_FORMATS",
    "PART_GROUPS",
    "AnnotatedImage",
    "Distribution",
    "FaceBox",
    "FaceDataset",
    "Finding",
    "ReadingOptions",
    "by_folder",
    "by_pattern",
    "by_table",
    "check_datasets",
    "choose_parts",
    "copy_images",
    "dataset_digest",
    "dataset_statistics",
    "expand_parts",
    "find_model_parts",
    "image_marks",
    "join_datasets",
    "numbered_parts",
    "part_names",
    "parts_array",
    "read_faces",
    "rebox_dataset",
    "renumber_parts",
    "require_images",
    "sheet_paths",
    "site_shares",
    "split_dataset",
    "write_contact_sheets",
    "write_imglab_xml",
]
