"""Genotypes variant by variant, VCF, BCF and BGEN, which are decoded once and written as files of PLINK."""
